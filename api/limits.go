package api

// RateLimits is the body of GET /v1/rate-limits.
type RateLimits struct {
	Limits []Limit `json:"limits"`
}

// Limit is one limit as it stands for the caller.
type Limit struct {
	Name      string `json:"name"`
	Operation string `json:"operation,omitempty"` // counts requests of this operation alone
	Scope     string `json:"scope"`               // what it counts per: "client", "ip", "operation", "client+operation" or "global"
	Algorithm string `json:"algorithm"`
	Limit     int64  `json:"limit"`           // per window
	Burst     int64  `json:"burst,omitempty"` // token-bucket: how many at once
	Remaining int64  `json:"remaining"`
	Reset     int64  `json:"reset"` // Unix seconds: when nothing of it is used any more, if nothing more is used
	Window    string `json:"window"`
	Enforced  bool   `json:"enforced"`
}
