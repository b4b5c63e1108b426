package jobs

// State is the state of a job inside the service. Clients see Public.
//
//	          offer              release            start            settle
//	request ────────▶ waiting ────────────▶ released ────────▶ running ────────▶ succeeded
//	                   ▲  ▲ │                   │                 │     ├──────▶ failed
//	                   │  │ └ deadline over ────┼─▶ expired       │     └ retry ─┐
//	                   │  └─── lease ran out ───┴─────────────────┘              │
//	                   └──────────────── backoff over ◀── delayed ◀──────────────┘
//	cancel: waiting, delayed, released → canceled at once
//	        running → the call is aborted, then canceled
type State string

const (
	Waiting   State = "waiting"   // in the line
	Delayed   State = "delayed"   // waits for its backoff to end
	Released  State = "released"  // has a slot and is on its way to a worker
	Running   State = "running"   // a worker calls the backend for it
	Succeeded State = "succeeded" // final
	Failed    State = "failed"    // final
	Canceled  State = "canceled"  // final
	Expired   State = "expired"   // final: a deadline passed before it could run
)

// Final reports whether the state is final. A job leaves one only if it is redriven.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, Canceled, Expired:
		return true
	}
	return false
}

// Public returns the state as named in the HTTP API: waiting, delayed and released are all
// "queued".
func (s State) Public() string {
	switch s {
	case Waiting, Delayed, Released:
		return "queued"
	}
	return string(s)
}

// Priority is the caller's influence on its job's place in the line.
type Priority string

const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Weight returns the factor by which a priority multiplies its tier's weight, and 0 for an unknown
// priority.
func (p Priority) Weight() float64 {
	switch p {
	case High:
		return 4
	case Normal:
		return 1
	case Low:
		return 0.25
	}
	return 0
}
