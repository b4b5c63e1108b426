package api

// Health is the body of GET /livez and GET /readyz.
type Health struct {
	Status   string   `json:"status"`             // "alive" or "ready"; anything else is a Problem
	Store    string   `json:"store,omitempty"`    // admin readyz: "redis", or "embedded": in memory, nothing is kept
	Warnings []string `json:"warnings,omitempty"` // admin readyz: what the operator should mend
}
