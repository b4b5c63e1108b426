package api

// Forecast is the body of GET /admin/v1/backends/{name}/forecast: what a line is going to do as it
// is, and with the proposed settings.
type Forecast struct {
	Backend     string   `json:"backend"`
	At          Time     `json:"at"`
	Waiting     int64    `json:"waiting"`
	Delayed     int64    `json:"delayed"`
	CallSeconds float64  `json:"call_seconds"` // smoothed length of a call; 0: not known
	Arrivals    Arrivals `json:"arrivals"`     // the assumption
	Now         Outlook  `json:"now"`
	Proposed    *Outlook `json:"proposed,omitempty"` // absent: nothing was proposed
}

// Arrivals are the jobs that entered a line in the last minute, as one process has seen it. A
// Forecast assumes that as many go on arriving. Those that the line refused, since it was full or
// too slow, are among them where there is a history.
type Arrivals struct {
	Known     bool    `json:"known"` // false: the process is too young, or Redis was unavailable
	PerSecond float64 `json:"per_second"`
	// Spread is the standard deviation of PerSecond over parts of five seconds.
	Spread      float64 `json:"spread_per_second"`
	OverSeconds float64 `json:"over_seconds"` // the time that they were counted over
}

// Outlook is what a line is going to do with some settings.
type Outlook struct {
	Rate        string `json:"rate"` // before feedback
	Concurrency int    `json:"concurrency"`
	Paused      bool   `json:"paused"`
	// BoundBy is what keeps the drain from being faster: "rate", "concurrency", "feedback",
	// "gate", "paused" or "queue_paused".
	BoundBy   string   `json:"bound_by"`
	PerSecond *float64 `json:"per_second"` // starts, at most; null: nothing known bounds them
	// ConcurrencyNeeded is the concurrency with which the rate would bind; absent: it does.
	ConcurrencyNeeded int `json:"concurrency_needed,omitempty"`

	EmptyAt *Time `json:"empty_at"` // null: never, or the arrivals aren't known
	FullAt  *Time `json:"full_at"`  // from when jobs are refused; null likewise
	// FullBy is the reason of the refusals: "line_full" or "wait_too_long".
	FullBy           string   `json:"full_by,omitempty"`
	RefusedPerMinute *float64 `json:"refused_per_minute"` // once it is full; null: not known
	WaitSeconds      *float64 `json:"wait_seconds"`       // of a job offered now; null: paused
	// Expiring is how many waiting jobs have a deadline before their start; while the drain is
	// paused, within the next hour.
	Expiring int64 `json:"expiring"`
	// ExpiringEstimated means that Expiring is an estimate, from 100 of the jobs.
	ExpiringEstimated bool `json:"expiring_estimated"`
}
