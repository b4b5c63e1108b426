package client

import (
	"net/http"
	"testing"
)

// A caller's limits and operations are read as the server has them; an answer of something else is
// none.
func TestLimitsAndOperationsAreRead(t *testing.T) {
	t.Parallel()
	s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/v1/operations" {
			return reply(200, `{"tier":"free","operations":[{"name":"report"}]}`), nil
		}
		return reply(200, `{"limits":[{"name":"per-minute","remaining":59}]}`), nil
	}}
	c := over(t, s, Config{})
	limits, err := c.RateLimits(t.Context())
	if err != nil || len(limits.Limits) != 1 || limits.Limits[0].Remaining != 59 {
		t.Errorf("%+v, %v", limits, err)
	}
	operations, err := c.Operations(t.Context())
	if err != nil || operations.Tier != "free" || operations.Operations[0].Name != "report" {
		t.Errorf("%+v, %v", operations, err)
	}
	c = over(t, &stub{answer: func(int, *http.Request) (*http.Response, error) {
		return reply(200, `{"hello":1}`), nil
	}}, Config{})
	if _, err := c.RateLimits(t.Context()); err == nil {
		t.Error("something else passes for limits")
	}
	if _, err := c.Operations(t.Context()); err == nil {
		t.Error("something else passes for operations")
	}
}
