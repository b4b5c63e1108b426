package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"forebay/internal/redistest"
)

func TestExp(t *testing.T) {
	o := *redistest.Client(t).(*redis.Client).Options()
	o.PoolSize = 64
	rdb := redis.NewClient(&o)
	ctx := context.Background()
	cpu := func() float64 {
		s, _ := rdb.Info(ctx, "cpu").Result()
		var t float64
		for _, l := range strings.Split(s, "\n") {
			var x float64
			if n, _ := fmt.Sscanf(l, "used_cpu_sys:%f", &x); n == 1 {
				t += x
			}
			if n, _ := fmt.Sscanf(l, "used_cpu_user:%f", &x); n == 1 {
				t += x
			}
		}
		return t
	}
	own := func() float64 {
		var r syscall.Rusage
		syscall.Getrusage(0, &r)
		return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	for _, c := range []struct {
		name    string
		clients int
		amount  int64
	}{
		{"ping", 1, MaxAmount},
		{"one-client", 1, MaxAmount},
		{"one-client-refused", 1, 1},
		{"1000-clients", 1000, MaxAmount},
		{"1000-clients-refused", 1000, 1},
	} {
		if o := os.Getenv("ONLY"); o != "" && o != c.name {
			continue
		}
		l := New(rdb, false)
		var rules []*Rule
		for i, a := range []Algorithm{TokenBucket, SlidingWindowCounter, SlidingWindowCounter} {
			r, _ := Compile(Limit{Name: redistest.Name(t, "bench"), Owner: fmt.Sprint(i), Algorithm: a, Per: PerClient, Amount: c.amount, Window: time.Hour})
			rules = append(rules, r)
		}
		clients := make([]string, c.clients)
		for i := range clients {
			clients[i] = fmt.Sprint("client", i)
		}
		decide := func(ctx context.Context) error {
			_, err := l.Decide(ctx, Request{Rules: rules, Subject: Subject{Client: clients[rand.IntN(len(clients))]}, Cost: 1})
			return err
		}
		if c.name == "ping" {
			decide = func(ctx context.Context) error { return rdb.Ping(ctx).Err() }
		}
		rdb.ConfigResetStat(ctx)
		c0, o0 := cpu(), own()
		n := 0.0
		start := time.Now()
		for range 10 {
			n += togetherX(decide)
		}
		el := time.Since(start).Seconds()
		s, _ := rdb.Info(ctx, "commandstats").Result()
		var calls, usec float64
		for _, l := range strings.Split(s, "\n") {
			if strings.HasPrefix(l, "cmdstat_evalsha:") {
				fmt.Sscanf(l, "cmdstat_evalsha:calls=%f,usec=%f", &calls, &usec)
			}
		}
		fmt.Printf("%-22s %7.0f/s  server %.2f client %.2f us  batch %.1f script %.1f us/call %.2f us/dec\n", c.name, n/el, (cpu()-c0)*1e6/n, (own()-o0)*1e6/n, n/calls, usec/calls, usec/n)
	}
}

func togetherX(do func(context.Context) error) float64 {
	done := make(chan int64)
	start := time.Now()
	for range 64 {
		go func() {
			n := int64(0)
			for time.Since(start) < 200*time.Millisecond {
				do(context.Background())
				n++
			}
			done <- n
		}()
	}
	var n int64
	for range 64 {
		n += <-done
	}
	return float64(n)
}
