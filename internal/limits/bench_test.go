package limits

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// BenchmarkDecide compares decisions over three limits, asked by 64 goroutines, with as many bare
// PINGs by as many goroutines on the same server in the same run.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name    string
		clients int
		amount  int64
	}{
		{"one-client", 1, MaxAmount},
		{"one-client-refused", 1, 1},
		{"1000-clients", 1000, MaxAmount},
		{"1000-clients-refused", 1000, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := *redistest.Client(b).(*redis.Client).Options()
			o.PoolSize = 64
			rdb := redis.NewClient(&o)
			b.Cleanup(func() { rdb.Close() })
			l := New(rdb, false)
			var rules []*Rule
			for i, a := range []Algorithm{TokenBucket, SlidingWindowCounter, SlidingWindowCounter} {
				r, err := Compile(Limit{Name: redistest.Name(b, "bench"), Owner: fmt.Sprint(i),
					Algorithm: a, Per: PerClient, Amount: c.amount, Window: time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				rules = append(rules, r)
			}
			clients := make([]string, c.clients)
			for i := range clients {
				clients[i] = fmt.Sprint("client", i)
			}
			var decisions, pings float64
			decide := func(ctx context.Context, i int64) error {
				_, err := l.Decide(ctx, Request{Rules: rules,
					Subject: Subject{Client: clients[i*7919%int64(len(clients))]}, Cost: 1})
				return err
			}
			ping := func(ctx context.Context, _ int64) error { return rdb.Ping(ctx).Err() }
			for b.Loop() {
				// In turns, so that other work of the machine slows both down alike.
				decisions += together(b, decide)
				pings += together(b, ping)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(decisions/float64(b.N), "decisions/s")
			b.ReportMetric(pings/float64(b.N), "pings/s")
			b.ReportMetric(decisions/pings, "decisions/ping")
		})
	}
}

// together returns how often per second 64 goroutines do it, over 100 ms.
func together(b *testing.B, do func(context.Context, int64) error) float64 {
	const span = 100 * time.Millisecond
	var n atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range 64 {
		all.Go(func() {
			for time.Since(start) < span {
				if err := do(b.Context(), n.Add(1)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(start).Seconds()
}
