package api

// RateLimits is the body of GET /v1/rate-limits.
type RateLimits struct {
	Limits []Limit `json:"limits"`
}

// Limit is one limit as it stands for the caller.
type Limit struct {
	Policy
	// Operation is the one that this entry is about; "": the limit is of all of the caller's requests. A limit on several operations is
	// listed with each, and where its Scope has no "operation" it is one count for them all.
	Operation string `json:"operation,omitempty"`
	Remaining int64  `json:"remaining"`
	// Reset is when more comes free by itself, in Unix seconds: when the window ends, the oldest entry leaves or the bucket is as good as
	// new; where nothing is left, when the next request fits. 0: a limit on jobs at one time, which has no such moment.
	Reset int64 `json:"reset,omitempty"`
}

// Policy is what one limit allows the caller.
type Policy struct {
	Name       string `json:"name"`
	Scope      string `json:"scope"` // what it counts per: "client", "ip", "operation", "client+operation", "tier", "country" or "global"
	Algorithm  string `json:"algorithm"`
	Limit      int64  `json:"limit"`                 // per window, in Unit; or jobs at one time
	Unit       string `json:"unit,omitempty"`        // "content-bytes": of requests' bodies; "": of cost
	Burst      int64  `json:"burst,omitempty"`       // token-bucket, leaky-bucket: how much at once
	Window     string `json:"window,omitempty"`      // such as "1m", or "month"; "": none, it counts jobs at one time
	Enforced   bool   `json:"enforced"`              // false: it is on trial, counts and refuses nobody
	GraceUntil *Time  `json:"grace_until,omitempty"` // the caller is new, and is allowed more until then
}

// Operations is the body of GET /v1/operations.
type Operations struct {
	Tier       string      `json:"tier"` // the caller's
	Operations []Operation `json:"operations"`
}

// Operation is what the caller may request, and the limits that apply then.
type Operation struct {
	Name string `json:"name"`
	Cost Cost   `json:"cost"`
	// OnOverload is what is tried, in this order, for a request that gets no job: "stale", "operation:<name>", "body", "reject".
	OnOverload []string `json:"on_overload"`
	FreshFor   string   `json:"fresh_for,omitempty"` // up to this age a stored answer is served as if it were new; "": none is
	StaleFor   string   `json:"stale_for,omitempty"` // up to this age one is served as stale; "": none is
	Coalesce   bool     `json:"coalesce,omitempty"`  // requests for the same, of those who share its answers, share one job
	Limits     []Policy `json:"limits"`
}

// Cost is what one request takes of each limit, but of those on jobs at one time.
type Cost struct {
	Fixed   int64  `json:"fixed,omitempty"`   // 0: the payload says
	From    string `json:"from,omitempty"`    // JSON Pointer into the payload, to a whole number from 1 to Max in digits alone
	Default int64  `json:"default,omitempty"` // where nothing is there
	Max     int64  `json:"max,omitempty"`
}

// ShadowLimits is the body of GET /admin/v1/shadow-limits.
type ShadowLimits struct {
	Refusals []ShadowRefusal `json:"refusals"` // the largest counts first
}

// ShadowRefusal is how often a limit that isn't enforced would have refused one client's requests for one operation in the last 24 hours.
type ShadowRefusal struct {
	Limit     string `json:"limit"`
	Client    string `json:"client"`
	Operation string `json:"operation,omitempty"` // "": the request named none
	Count     int64  `json:"count"`
	LastAt    Time   `json:"last_at"`
}
