package client

import (
	"context"
	"encoding/json"

	"github.com/forebay/forebay/api"
)

// RateLimits returns the limits of the caller, and where they stand. It spends none of them.
func (c *Client) RateLimits(ctx context.Context) (*api.RateLimits, error) {
	call := call{method: "GET", path: "/v1/rate-limits"}
	a, err := c.do(ctx, call)
	if err != nil {
		return nil, err
	}
	var limits api.RateLimits
	if json.Unmarshal(a.body, &limits) != nil || limits.Limits == nil {
		return nil, a.foreign(call)
	}
	return &limits, nil
}

// Operations returns the operations that the caller may request, with their costs and limits.
func (c *Client) Operations(ctx context.Context) (*api.Operations, error) {
	call := call{method: "GET", path: "/v1/operations"}
	a, err := c.do(ctx, call)
	if err != nil {
		return nil, err
	}
	var operations api.Operations
	if json.Unmarshal(a.body, &operations) != nil || operations.Operations == nil {
		return nil, a.foreign(call)
	}
	return &operations, nil
}
