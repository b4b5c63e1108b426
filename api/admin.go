package api

// Backends is the body of GET /admin/v1/backends.
type Backends struct {
	Backends []Backend `json:"backends"`
}

// Backend is the state of one backend's drain and line at one moment.
type Backend struct {
	Name        string          `json:"name"`
	Rate        Setting[string] `json:"rate"`
	Burst       Setting[int]    `json:"burst"`
	Concurrency Setting[int]    `json:"concurrency"`
	Capacity    Setting[int]    `json:"capacity"`
	Paused      bool            `json:"paused"`
	Feedback    Setting[string] `json:"feedback"`        // FeedbackOn or FeedbackOff
	Pause       *OverrideNote   `json:"pause,omitempty"` // on the override that pauses it
	TunedBy     string          `json:"tuned_by,omitempty"`
	TunedAt     *Time           `json:"tuned_at,omitempty"`
	TunedReason string          `json:"tuned_reason,omitempty"` // of the last change, if it had one

	Factor    float64 `json:"factor"`     // fraction of the rate that feedback leaves; 1: all of it
	Cause     *string `json:"cause"`      // "throttled", "timeout" or "unreachable"; null: none
	Probing   bool    `json:"probing"`    // one call tests whether the backend has recovered
	GateUntil *Time   `json:"gate_until"` // the end of a pause that the backend asked for

	WaitingOn string `json:"waiting_on"` // what the next job waits on; "idle" if there is none
	Waiting   int64  `json:"waiting"`    // jobs in the line
	Delayed   int64  `json:"delayed"`    // jobs that wait for a retry
	InFlight  int64  `json:"in_flight"`  // jobs on their way to the backend, or there

	OldestWaitSeconds float64     `json:"oldest_wait_seconds"` // age of the next job
	CallSeconds       float64     `json:"call_seconds"`        // smoothed length; 0: not known
	RecentCalls       RecentCalls `json:"recent_calls"`
	Outcomes          Outcomes    `json:"outcomes"`
}

// RecentCalls describes the calls that ended in the last one to two minutes, over all workers.
// Reported lengths are at most 41 % too high.
type RecentCalls struct {
	Ended      int64   `json:"ended"`
	PerSecond  float64 `json:"per_second"`
	P50Seconds float64 `json:"p50_seconds"` // 0: none ended
	P95Seconds float64 `json:"p95_seconds"`
	P99Seconds float64 `json:"p99_seconds"`
}

// Setting is one value that an operator may change live.
type Setting[T any] struct {
	Configured T  `json:"configured"` // the file's
	Override   *T `json:"override"`   // set live; null: not set
	Effective  T  `json:"effective"`  // in force; rate and concurrency are reduced by feedback
	OverrideNote
}

// OverrideNote says who set an override, when and why, and when it ends. Without an override it is
// empty, and so it is for one that an older version set.
type OverrideNote struct {
	SetBy     string `json:"set_by,omitempty"`
	SetAt     *Time  `json:"set_at,omitempty"`
	Reason    string `json:"reason,omitempty"`
	ExpiresAt *Time  `json:"expires_at,omitempty"` // it ends by itself; absent: it stays
}

// Values of Backend.Feedback and Tuning.Feedback, as in the config.
const (
	FeedbackOn  = "on"
	FeedbackOff = "off"
)

// Outcomes counts the outcomes of a backend's jobs. Accepted = waiting + delayed + in flight +
// Succeeded + Failed + Canceled + Expired + Lost.
type Outcomes struct {
	Accepted  int64 `json:"accepted"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Canceled  int64 `json:"canceled"`
	Expired   int64 `json:"expired"`
	Lost      int64 `json:"lost"`      // jobs whose data is missing from the store
	Redriven  int64 `json:"redriven"`  // failed jobs put back into the line, counted each time
	Started   int64 `json:"started"`   // calls begun
	Throttled int64 `json:"throttled"` // calls that the backend answered with 429 or 503
}

// Tuning is the body of PATCH /admin/v1/backends/{name}. Absent settings are left unchanged, with
// their reasons and ends. With If-Match, an ETag of the backend's settings, nothing is changed if
// the settings are others (CodeSettingsChanged).
type Tuning struct {
	Rate        *string `json:"rate,omitempty"` // "5/s", "0.2/s", "6/m", "unlimited"
	Burst       *int    `json:"burst,omitempty"`
	Concurrency *int    `json:"concurrency,omitempty"`
	Capacity    *int    `json:"capacity,omitempty"`
	Paused      *bool   `json:"paused,omitempty"`
	Feedback    *string `json:"feedback,omitempty"` // FeedbackOn or FeedbackOff

	// Reason is kept with the settings of this body and logged: one line of at most 200 characters.
	Reason *string `json:"reason,omitempty"`
	// ExpiresIn is when the settings of this body end by themselves: 1s to 30d, such as "30m".
	// Absent: they stay until they are changed.
	ExpiresIn *string `json:"expires_in,omitempty"`
}

// AdminJob is a job as operators see it: any client's, with its owner and the reason of its
// failure.
type AdminJob struct {
	ID         string      `json:"job_id"`
	Backend    string      `json:"backend"`
	Operation  string      `json:"operation"`
	Client     string      `json:"client"` // its name, or "ip:" and its address
	Tier       string      `json:"tier"`
	Priority   string      `json:"priority"`
	Status     string      `json:"status"` // as Job.Status
	State      string      `json:"state"`  // finer: Queued is "waiting", "delayed" or "released"
	Done       bool        `json:"done"`   // only a redrive can change Status
	Canceling  bool        `json:"canceling,omitempty"`
	Attempts   int         `json:"attempts"`
	Queue      *Queue      `json:"queue,omitempty"`
	CreatedAt  Time        `json:"created_at"`
	StartedAt  *Time       `json:"started_at,omitempty"`
	FinishedAt *Time       `json:"finished_at,omitempty"`
	ExpiresAt  *Time       `json:"expires_at"`
	Failure    *JobFailure `json:"failure,omitempty"`        // of the job, or of its last attempt
	Answer     *KeptAnswer `json:"backend_answer,omitempty"` // the backend's last one, if kept
	Links      AdminLinks  `json:"links"`
}

// JobFailure is the reason why a job, or an attempt, failed.
type JobFailure struct {
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// KeptAnswer is the backend's answer to a job. It holds the body only when a single job is
// requested and the body is at most 256 KiB.
type KeptAnswer struct {
	BackendAnswer
	Size int64 `json:"size"`
}

// AdminLinks are the links of an AdminJob, as paths.
type AdminLinks struct {
	Self    string `json:"self"`
	Cancel  string `json:"cancel,omitempty"`  // absent once the job is done; use DELETE
	Redrive string `json:"redrive,omitempty"` // only for Failed; use POST
}

// AdminJobs is the body of GET /admin/v1/jobs. A page may be short, or empty, and still have a next
// one.
type AdminJobs struct {
	Jobs       []AdminJob `json:"jobs"`
	NextCursor *string    `json:"next_cursor"` // null: this is the last page
}

// RedriveFilter is the body of POST /admin/v1/backends/{name}/redrive. Absent fields match any job.
type RedriveFilter struct {
	Operation *string `json:"operation,omitempty"`
	Client    *string `json:"client,omitempty"`
	Code      *string `json:"code,omitempty"` // of JobFailure
	Max       *int    `json:"max,omitempty"`  // jobs: 1 to 10,000; absent: 1,000

	// DryRun asks what the redrive would do: it redrives nothing, and its answer is a RedrivePreview.
	DryRun *bool `json:"dry_run,omitempty"`
	// LimitTo is the token of a RedrivePreview: exactly its jobs are redriven. No other field may
	// be set with it.
	LimitTo *string `json:"limit_to,omitempty"`
}

// RedrivePreview says what a redrive would do, and holds its jobs together: those of them that are
// still failed can be redriven by the token, whatever fails meanwhile.
type RedrivePreview struct {
	Backend  string `json:"backend"`
	At       Time   `json:"at"`
	Jobs     int    `json:"jobs"`
	Stopped  string `json:"stopped"`            // StoppedDone, StoppedMax or StoppedTime
	Token    string `json:"token,omitempty"`    // for RedriveFilter.LimitTo; absent if Jobs is 0
	ValidTo  *Time  `json:"valid_to,omitempty"` // of the token
	OldestAt *Time  `json:"oldest_at"`          // when the first of them failed

	ByClient    map[string]int `json:"by_client"`
	ByOperation map[string]int `json:"by_operation"`
	ByCode      map[string]int `json:"by_code"`

	Ahead  int64 `json:"ahead"` // jobs that wait now
	Room   int64 `json:"room"`  // jobs that the line has room for now
	Paused bool  `json:"paused"`
	// LeftAt predicts when the last of them has left the line, at the present rate; null: paused,
	// or there are none.
	LeftAt *Time `json:"left_at"`
}

// Redriven is the outcome of redriving many jobs. After StoppedTime and StoppedStore, a few more
// jobs than Redriven may wait again.
type Redriven struct {
	Redriven int `json:"redriven"` // jobs that wait again
	// Skipped counts the jobs of a preview that are no longer failed, have failed again since, or
	// are gone.
	Skipped int    `json:"skipped,omitempty"`
	Stopped string `json:"stopped"`
}

// Values of Redriven.Stopped. After any but StoppedDone, another call continues.
const (
	StoppedDone  = "none_left"   // no matching failed job is left
	StoppedMax   = "max_reached" // as many as were requested
	StoppedFull  = "line_full"
	StoppedTime  = "time_over" // one call takes at most 10 s
	StoppedStore = "store_unavailable"
)

// Books is the body of GET /admin/v1/backends/{name}/books: the counters and the jobs that are
// there, all at one moment.
type Books struct {
	Backend      string           `json:"backend"`
	At           Time             `json:"at"`
	Balanced     bool             `json:"balanced"`
	Difference   int64            `json:"difference"` // Outcomes.Accepted less all others
	Waiting      int64            `json:"waiting"`
	Delayed      int64            `json:"delayed"`
	InFlight     int64            `json:"in_flight"`
	FailedListed int64            `json:"failed_listed"` // failed jobs that can be redriven
	Outcomes     Outcomes         `json:"outcomes"`
	Repairs      map[string]int64 `json:"repairs"` // repairs of the reconciler so far, by kind
}
