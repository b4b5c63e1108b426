package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// A caller that leaves still gives back, and one that left before the call isn't charged.
func TestCallersThatLeave(t *testing.T) {
	everywhere(t, func(t *testing.T, c *clock, l *Limiter) {
		r := bucketOf(t, 10, time.Hour, 0)
		v := decide(t, l, request(4, r))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Decide(gone, request(1, r)); !errors.Is(err, context.Canceled) {
			t.Errorf("Decide for a caller that is gone: %v", err)
		}
		if err := l.Refund(gone, v); err != nil {
			t.Errorf("Refund for a caller that is gone: %v", err)
		}
		if n := peekAt(t, l, request(1, r)).Standings[0].Remaining; n != 10 {
			t.Errorf("%d remain of 10", n)
		}
	})
}

// If Redis hangs, every decision ends with an error in time, however many there are.
func TestAHungRedisIsAnErrorInTime(t *testing.T) {
	t.Parallel()
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprint("cluster=", cluster), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			l := New(server.Client(t), cluster)
			r := bucketOf(t, 1000, time.Hour, 0)
			decide(t, l, request(1, r))
			server.Stop()
			defer server.Cont()
			var all sync.WaitGroup
			for range 200 { // more than one call takes
				all.Go(func() {
					begun := time.Now()
					_, err := l.Decide(t.Context(), request(1, r))
					// The client's own timeout is 5 s.
					if took := time.Since(begun); err == nil || took > 3*time.Second {
						t.Errorf("%v after %v", err, took)
					}
				})
			}
			all.Wait()
		})
	}
}

// After a lost reply there is an error, and at most one charge. The next decision works.
func TestALostReplyChargesOnce(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied=", applied), func(t *testing.T) {
			each(t, 10, MaxWindow, func(t *testing.T, r *Rule) {
				rdb := redistest.Client(t)
				l := newLimiter(&script{rdb: rdb, slack: keySlack}, false, patience)
				v := decide(t, l, request(3, r)) // and the script is known
				faulty := redistest.NewFaulty(t, rdb)
				faulty.FailNext(isScript, applied)
				if _, err := l.Decide(t.Context(), request(2, r)); err == nil {
					t.Fatal("a lost reply passed as an answer")
				}
				want := int64(7)
				if applied {
					want = 5
				}
				if n := peekAt(t, l, request(1, r)).Standings[0].Remaining; n != want {
					t.Fatalf("%d remain, not %d", n, want)
				}
				faulty.FailNext(isScript, applied)
				if err := l.Refund(t.Context(), v); err == nil {
					t.Error("a lost refund passed as one")
				}
				if err := l.Refund(t.Context(), v); err != nil {
					t.Error(err)
				}
				if applied {
					want += 3
				}
				if n := peekAt(t, l, request(1, r)).Standings[0].Remaining; n != want {
					t.Errorf("%d remain after the refund, not %d", n, want)
				}
			})
		})
	}
}

func isScript(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }
