package web

import (
	"context"
	"sync"
	"time"
)

// storeContext is the context of a call's work in the store: it has a deadline, and doesn't end
// with the request. It takes a timer only once somebody waits for its end, because many answers
// come from memory, and a timer with its contexts is a good part of what such an answer costs.
type storeContext struct {
	request  context.Context // whose values it has
	deadline time.Time

	mu     sync.Mutex
	inner  context.Context    // guarded by mu; nil: nobody has waited yet
	cancel context.CancelFunc // guarded by mu; of inner
	over   bool               // guarded by mu: end was called
}

// context is the context that does the work, made when it is needed.
func (c *storeContext) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(context.WithoutCancel(c.request), c.deadline)
		if c.over {
			c.cancel()
		}
	}
	return c.inner
}

// end cancels the context. It may be called more than once.
func (c *storeContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *storeContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *storeContext) Done() <-chan struct{}       { return c.context().Done() }
func (c *storeContext) Err() error                  { return c.context().Err() }
func (c *storeContext) Value(key any) any           { return c.context().Value(key) }
