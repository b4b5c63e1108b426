package api

// Health is the body of GET /livez and GET /readyz.
type Health struct {
	Status   string   `json:"status"`             // "alive" or "ready"; other states are a Problem
	Store    string   `json:"store,omitempty"`    // admin readyz: "redis", or "embedded": in memory
	Warnings []string `json:"warnings,omitempty"` // admin readyz: faults for the operator to fix
}
