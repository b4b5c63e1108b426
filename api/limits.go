package api

// RateLimits is the body of GET /v1/rate-limits.
type RateLimits struct {
	Limits []Limit `json:"limits"`
}

// Limit is the state of one limit for the caller.
type Limit struct {
	Policy
	// Operation is the operation of this entry; "" means that the limit counts all of the caller's
	// requests. A limit on several operations is listed with each. If its Scope has no "operation",
	// they share one count.
	Operation string `json:"operation,omitempty"`
	Remaining int64  `json:"remaining"`
	// Reset is when more becomes available, in Unix seconds: when the window ends, when the oldest
	// entry leaves, or when the bucket is full again. If nothing is left, it is when the next
	// request fits. 0: a limit on concurrent jobs, which has no such moment.
	Reset int64 `json:"reset,omitempty"`
}

// Policy is what one limit allows the caller.
type Policy struct {
	Name string `json:"name"`
	// Scope is what the limit counts per: "client", "ip", "operation", "client+operation", "tier",
	// "country" or "global".
	Scope      string `json:"scope"`
	Algorithm  string `json:"algorithm"`
	Limit      int64  `json:"limit"`                 // per window, in Unit; or concurrent jobs
	Unit       string `json:"unit,omitempty"`        // "content-bytes": bytes of bodies; "": cost
	Burst      int64  `json:"burst,omitempty"`       // token-bucket, leaky-bucket: the most at once
	Window     string `json:"window,omitempty"`      // "1m", "month"; "": counts concurrent jobs
	Enforced   bool   `json:"enforced"`              // false: on trial, refuses no request
	GraceUntil *Time  `json:"grace_until,omitempty"` // a new caller may use more until then
}

// Operations is the body of GET /v1/operations.
type Operations struct {
	Tier       string      `json:"tier"` // the caller's
	Operations []Operation `json:"operations"`
}

// Operation is an operation that the caller may request, with the limits that apply to it.
type Operation struct {
	Name string `json:"name"`
	Cost Cost   `json:"cost"`
	// OnOverload lists the steps tried, in order, for a request that gets no job: "stale",
	// "operation:<name>", "body", "reject".
	OnOverload []string `json:"on_overload"`
	FreshFor   string   `json:"fresh_for,omitempty"` // age up to which answers are fresh; "": never
	StaleFor   string   `json:"stale_for,omitempty"` // age up to which stale ones serve; "": never
	Coalesce   bool     `json:"coalesce,omitempty"`  // equal requests may share a job
	Limits     []Policy `json:"limits"`
}

// Cost is what one request takes of each limit, except those on concurrent jobs.
type Cost struct {
	Fixed   int64  `json:"fixed,omitempty"`   // 0: the payload gives it
	From    string `json:"from,omitempty"`    // JSON Pointer to a whole number, 1 to Max, in digits
	Default int64  `json:"default,omitempty"` // if the payload has no value there
	Max     int64  `json:"max,omitempty"`
}

// ShadowLimits is the body of GET /admin/v1/shadow-limits.
type ShadowLimits struct {
	Refusals []ShadowRefusal `json:"refusals"` // the largest counts first
}

// ShadowRefusal counts how often, in the last 24 hours, a limit that isn't enforced would have
// refused one client's requests for one operation.
type ShadowRefusal struct {
	Limit     string `json:"limit"`
	Client    string `json:"client"`
	Operation string `json:"operation,omitempty"` // "": the request named none
	Count     int64  `json:"count"`
	LastAt    Time   `json:"last_at"`
}
