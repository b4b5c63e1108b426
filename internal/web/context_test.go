package web

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The context of a call's work ends at its deadline or with the call, and not with the connection,
// whenever somebody begins to wait for it.
func TestAStoreContextEndsAsAnyOther(t *testing.T) {
	t.Parallel()
	type key struct{}
	for name, c := range map[string]struct {
		before, after func(*storeContext)
		want          error
	}{
		"at its deadline": {func(*storeContext) {},
			func(*storeContext) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"its deadline is over": {func(*storeContext) { time.Sleep(2 * time.Second) },
			func(*storeContext) {}, context.DeadlineExceeded},
		"with the call": {func(*storeContext) {}, (*storeContext).end,
			context.Canceled},
		"the call is over": {(*storeContext).end, func(*storeContext) {},
			context.Canceled},
		"the call is over for another": {(*storeContext).end, (*storeContext).end,
			context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				request, hangUp := context.WithCancel(context.WithValue(t.Context(), key{},
					"value"))
				ctx := &storeContext{request: request, deadline: time.Now().Add(time.Second)}
				c.before(ctx)
				hangUp()
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				if name == "at its deadline" && child.Err() != nil {
					t.Fatalf("it ended with the connection: %v", child.Err())
				}
				c.after(ctx)
				<-child.Done()
				if !errors.Is(ctx.Err(), c.want) || !errors.Is(child.Err(), c.want) ||
					ctx.Value(key{}) != "value" {
					t.Errorf("%v, %v of its child, value %v", ctx.Err(), child.Err(),
						ctx.Value(key{}))
				}
				ctx.end()
			})
		})
	}
}

// not in parallel: it counts allocations
func TestAStoreContextCostsLittleUntilItIsWaitedFor(t *testing.T) {
	request := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		ctx := &storeContext{request: request, deadline: time.Now()}
		ctx.Deadline()
		ctx.end()
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
