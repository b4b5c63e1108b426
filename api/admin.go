package api

// Backends is the body of GET /admin/v1/backends.
type Backends struct {
	Backends []Backend `json:"backends"`
}

// Backend is one backend's drain and line at one moment.
type Backend struct {
	Name        string          `json:"name"`
	Rate        Setting[string] `json:"rate"`
	Burst       Setting[int]    `json:"burst"`
	Concurrency Setting[int]    `json:"concurrency"`
	Capacity    Setting[int]    `json:"capacity"`
	Paused      bool            `json:"paused"`
	TunedBy     string          `json:"tuned_by,omitempty"`
	TunedAt     *Time           `json:"tuned_at,omitempty"`

	WaitingOn         string   `json:"waiting_on"`          // what the next job waits on; "idle" where there is none
	GateUntil         *Time    `json:"gate_until"`          // the backend asked for rest until then; null: it didn't
	Waiting           int64    `json:"waiting"`             // jobs in the line
	Delayed           int64    `json:"delayed"`             // jobs that wait for a retry
	InFlight          int64    `json:"in_flight"`           // jobs on their way to the backend, or there
	OldestWaitSeconds float64  `json:"oldest_wait_seconds"` // age of the job that is next
	CallSeconds       float64  `json:"call_seconds"`        // smoothed length of a call; 0: not known yet
	Outcomes          Outcomes `json:"outcomes"`
}

// Setting is one number that an operator may change live.
type Setting[T any] struct {
	Configured T  `json:"configured"` // the file's
	Override   *T `json:"override"`   // set live; null: nothing is
	Effective  T  `json:"effective"`  // in force
}

// Outcomes count what became of a backend's jobs. Accepted = waiting + delayed + in flight + Succeeded + Failed + Canceled + Expired.
type Outcomes struct {
	Accepted  int64 `json:"accepted"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Canceled  int64 `json:"canceled"`
	Expired   int64 `json:"expired"`
	Started   int64 `json:"started"`   // calls begun
	Throttled int64 `json:"throttled"` // calls that the backend answered with 429 or 503
}

// Tuning is the body of PATCH /admin/v1/backends/{name}. Absent fields stay as they are.
type Tuning struct {
	Rate        *string `json:"rate,omitempty"` // "5/s", "0.2/s", "6/m", "unlimited"
	Burst       *int    `json:"burst,omitempty"`
	Concurrency *int    `json:"concurrency,omitempty"`
	Capacity    *int    `json:"capacity,omitempty"`
	Paused      *bool   `json:"paused,omitempty"`
}
