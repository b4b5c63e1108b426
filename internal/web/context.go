package web

import (
	"context"
	"sync"
	"time"
)

// storeContext is the context of a call's work in the store: it has a deadline, and doesn't end
// with the request. It makes a timer only when a function waits for its end: many answers come from
// memory, and a timer with its contexts would be a good part of their cost.
type storeContext struct {
	request  context.Context // whose values it has
	deadline time.Time

	mu     sync.Mutex
	inner  context.Context    // guarded by mu; nil: no wait yet
	cancel context.CancelFunc // guarded by mu; of inner
	over   bool               // guarded by mu: end was called
}

// context returns the context that does the work, and makes it when it is first needed.
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
