package web

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
)

// turnWait is how long a list waits for an earlier list of its reader. Lists take a few ms. With
// StoreTime added, an answer comes within a second.
const turnWait = 300 * time.Millisecond

// Turns let each reader read one list at a time: for a list the store looks at many things, and all
// other requests wait meanwhile. The zero value is ready to use. Safe for concurrent use.
type Turns struct {
	mu    sync.Mutex
	turns map[string]*turn // guarded by mu; by reader
}

type turn struct {
	taken chan struct{} // has a value while a list is being read
	users int           // guarded by Turns.mu: requests that have the turn or wait for it
}

// Take waits until no other list of the same reader is under way, for up to 300 ms, and renews the
// call's time for the store. leave must be called once the list is read. An error is the problem to
// answer with: the wait was too long.
func (t *Turns) Take(c *Call, reader string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(c.R.Context(), turnWait)
	defer cancel()
	if leave = t.enter(ctx, reader); leave == nil {
		p := Problem(http.StatusTooManyRequests, api.CodeTooManyLists,
			"Another list of yours is being read. Ask for one at a time.")
		p.RetryAfter = 1
		return nil, p
	}
	c.Renew(0)
	return leave, nil
}

// enter waits for a reader's turn until ctx ends; then it returns nil.
func (t *Turns) enter(ctx context.Context, reader string) (leave func()) {
	t.mu.Lock()
	if t.turns == nil {
		t.turns = make(map[string]*turn)
	}
	own := t.turns[reader]
	if own == nil {
		own = &turn{taken: make(chan struct{}, 1)}
		t.turns[reader] = own
	}
	own.users++
	t.mu.Unlock()
	left := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.turns, reader)
		}
	}
	select {
	case own.taken <- struct{}{}:
		return func() { <-own.taken; left() }
	case <-ctx.Done():
		left()
		return nil
	}
}

// Users returns how many requests have a turn or wait for one.
func (t *Turns) Users() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, own := range t.turns {
		n += own.users
	}
	return n
}
