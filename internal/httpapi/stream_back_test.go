package httpapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// If Redis restarts without its last writes, a job is in an earlier state: a client that saw a
// later one gets the earlier one.
func TestAStreamTellsOfAJobThatWasSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	ticket := w.Start(id)
	s := w.stream(id, key(keyA))
	_, running := s.wants("status", api.Running)
	setBack := w.snapshot()
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Delayed,
		Failure: jobs.Failure{Code: jobs.CodeBackendTimeout, Detail: "No answer."}})
	if _, version := s.wants("status", api.Queued); version <= running {
		t.Fatalf("version %d after %d", version, running)
	}
	setBack()
	// After a reconnect every job watch looks; here, a message about the job makes it look.
	if err := w.Redis.Publish(t.Context(), jobs.KeyPrefix(w.Backend)+"moved",
		id).Err(); err != nil {
		t.Fatal(err)
	}
	if _, version := s.wants("status", api.Running); version != running {
		t.Errorf("version %d, want %d again", version, running)
	}
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded, Result: jobs.Meta{Status: 200}})
	s.wants("done", api.Succeeded)
	s.over(false)
}

// snapshot notes all that Redis has of the world's backend, and returns a function that restores
// it.
func (w *world) snapshot() (setBack func()) {
	w.Helper()
	ctx, all := context.Background(), jobs.KeyPrefix(w.Backend)+"*"
	type dump struct {
		ttl  time.Duration // 0: none
		text string
	}
	dumps := map[string]dump{}
	for _, key := range w.Redis.Keys(ctx, all).Val() {
		dumps[key] = dump{max(w.Redis.PTTL(ctx, key).Val(), 0), w.Redis.Dump(ctx, key).Val()}
	}
	return func() {
		w.Helper()
		_, err := w.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, w.Redis.Keys(ctx, all).Val()...)
			for key, d := range dumps {
				p.Restore(ctx, key, d.ttl, d.text)
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
}
