package api

// History is the body of GET /admin/v1/history: what happened between two times, step by step.
type History struct {
	From        Time             `json:"from"` // the beginning of the first step
	To          Time             `json:"to"`   // the end of the last step, which may be a short one
	StepSeconds int              `json:"step_seconds"`
	Backends    []BackendHistory `json:"backends"` // in order of their names
	Events      []HistoryEvent   `json:"events"`   // in between; the newest 200 at most
}

// BackendHistory is one backend's part of a History.
type BackendHistory struct {
	Backend string         `json:"backend"`
	Points  []HistoryPoint `json:"points"` // one for each step, the oldest first; 2,000 at most
}

// HistoryPoint is one step. Its counts are of all processes together: the decisions on requests for
// the backend's operations, gateways' checks among them. Offered = Accepted + Fresh + Degraded +
// Rejected.
type HistoryPoint struct {
	At       Time  `json:"at"`      // the beginning of the step
	Seconds  int   `json:"seconds"` // its length: the last one may be shorter than the others
	Offered  int64 `json:"offered"`
	Accepted int64 `json:"accepted"` // without Fresh
	Fresh    int64 `json:"fresh"`    // answered with a stored answer that is as good as a new one
	Degraded int64 `json:"degraded"`
	Rejected int64 `json:"rejected"`
	// RejectedBy has the parts of Rejected by the name of the limit that refused, or by the code of
	// another reason. HistoryOther has what is beyond six reasons in ten minutes, or by the minute
	// in two hours.
	RejectedBy map[string]int64 `json:"rejected_by,omitempty"`
	// Line is null where no process looked: none ran, or the store was unavailable.
	Line *HistoryLine `json:"line"`
}

// HistoryOther is the reason in HistoryPoint.RejectedBy for all reasons that have none of their
// own.
const HistoryOther = "other"

// HistoryLine is a backend's line as it was when a process last looked in a step. Its counts have
// what began or ended since the look before, which may be in an earlier step.
type HistoryLine struct {
	Waiting           int64           `json:"waiting"`
	Capacity          int64           `json:"capacity"`
	OldestWaitSeconds float64         `json:"oldest_wait_seconds"`
	Rate              Setting[string] `json:"rate"` // per second: "2.97/s", or "unlimited"
	Paused            bool            `json:"paused"`
	Probing           bool            `json:"probing"`
	Cause             string          `json:"cause,omitempty"` // as Backend.Cause
	Started           int64           `json:"started"`         // calls begun
	Throttled         int64           `json:"throttled"`       // calls answered with 429 or 503
	Succeeded         int64           `json:"succeeded"`
	Failed            int64           `json:"failed"`
	Canceled          int64           `json:"canceled"`
	Expired           int64           `json:"expired"`
}

// HistoryEvent is an event in a History: GET /admin/v1/events has the rest of it.
type HistoryEvent struct {
	ID      string `json:"id"`
	Time    Time   `json:"time"`
	Type    string `json:"type"`
	Backend string `json:"backend,omitempty"`
}
