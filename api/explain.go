package api

// Explanation is the body of GET /admin/v1/jobs/{id}/explain, and of GET /v1/jobs/{id}?explain=1:
// why a job is where it is. Fields that name other clients or operators are in the first alone.
type Explanation struct {
	JobID     string `json:"job_id"`
	Backend   string `json:"backend"`
	Operation string `json:"operation"`
	Client    string `json:"client,omitempty"` // operators
	Status    string `json:"status"`           // as Job.Status
	State     string `json:"state"`            // as AdminJob.State
	At        Time   `json:"at"`
	// Reason is a sentence on what the job waits for, or how it ended.
	Reason string `json:"reason"`

	Position        int64    `json:"position,omitempty"` // 1 is next; absent: it isn't in the line
	Waiting         int64    `json:"waiting"`            // jobs in the line
	StartsAt        *Time    `json:"starts_at"`          // predicted; null: not known, or begun
	StartsInSeconds *float64 `json:"starts_in_seconds"`

	Rate   *ExplainedRate `json:"rate,omitempty"`   // jobs in the line
	Ahead  *Ahead         `json:"ahead,omitempty"`  // jobs in the line
	Holds  []Hold         `json:"holds,omitempty"`  // jobs in the line: what may hold it, and does
	Sooner []Sooner       `json:"sooner,omitempty"` // changes with which it would start sooner
}

// ExplainedRate is the rate in force, and its factors.
type ExplainedRate struct {
	Effective    string  `json:"effective"`            // Configured, or Override, times Factor
	Configured   string  `json:"configured,omitempty"` // operators
	Override     *string `json:"override,omitempty"`   // operators; absent: none is set
	OverrideNote         // on Override: operators

	Factor      float64 `json:"factor"`                 // what feedback leaves; 1: all of it
	Cause       string  `json:"cause,omitempty"`        // as Backend.Cause; "": Factor is 1
	FactorSince *Time   `json:"factor_since,omitempty"` // when trouble lowered it last
}

// Ahead are the jobs that start before a job.
type Ahead struct {
	Jobs    int64         `json:"jobs"`
	Clients []ClientAhead `json:"clients,omitempty"` // operators; at most 8, the largest first
	// OtherClients have OtherJobs of them: operators.
	OtherClients int64 `json:"other_clients,omitempty"`
	OtherJobs    int64 `json:"other_jobs,omitempty"`
	// Estimated means that the numbers by client are estimates, from 100 of the jobs.
	Estimated bool `json:"estimated,omitempty"`
}

// ClientAhead is one client's part of the jobs ahead.
type ClientAhead struct {
	Client string `json:"client"`
	Jobs   int64  `json:"jobs"`
}

// Hold is one thing that may hold a job.
type Hold struct {
	What         string `json:"what"` // "gate", "concurrency" or "pause"
	Holds        bool   `json:"holds"`
	Detail       string `json:"detail"` // such as "3 of 4 calls at once"
	Until        *Time  `json:"until,omitempty"`
	OverrideNote        // on the override that pauses it: operators
}

// Sooner is a change with which a job would start sooner.
type Sooner struct {
	Change          string  `json:"change"` // "rate", "concurrency", "resume", "health", "priority"
	Value           string  `json:"value,omitempty"`
	StartsInSeconds float64 `json:"starts_in_seconds"`
}
