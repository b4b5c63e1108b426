package admission

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"forebay/internal/redistest"
)

func TestScriptCost(t *testing.T) {
	rdb := redistest.Client(t)
	ctx := context.Background()
	usec := func() float64 {
		s, _ := rdb.Info(ctx, "commandstats").Result()
		var calls, usec float64
		for _, l := range strings.Split(s, "\n") {
			if strings.HasPrefix(l, "cmdstat_evalsha:") {
				fmt.Sscanf(l, "cmdstat_evalsha:calls=%f,usec=%f", &calls, &usec)
			}
		}
		return usec
	}
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
	files := strings.Fields(os.Getenv("LUA"))
	if len(files) == 0 {
		files = []string{"limits.lua"}
	}
	for _, amount := range []int64{MaxAmount, 1} {
		best := map[string]float64{}
		bestU := map[string]float64{}
		for range 6 {
			for _, f := range files {
				src, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				sc := redis.NewScript(string(src))
				sc.Load(ctx, rdb)
				var batches []*call
				var rules []*Rule
				for i, a := range []Algorithm{TokenBucket, SlidingWindowCounter, SlidingWindowCounter} {
					r, _ := Compile(Limit{Name: redistest.Name(t, "bench"), Owner: fmt.Sprint(i), Algorithm: a, Per: PerClient, Amount: amount, Window: time.Hour})
					rules = append(rules, r)
				}
				s := &script{slack: time.Second}
				for i := range 32 {
					var qs []question
					for j := range 32 {
						q, _ := Request{Rules: rules, Subject: Subject{Client: fmt.Sprint(i*32 + j)}, Cost: 1}.question(spend)
						qs = append(qs, q)
					}
					batches = append(batches, s.encode(qs))
				}
				const rounds = 1000
				s.rdb = rdb
				u0, c0 := usec(), cpu()
				for i := range rounds {
					if _, err := s.run(ctx, "evalsha", sc.Hash(), batches[i%32]); err != nil {
						t.Fatal(err)
					}
				}
				c := (cpu() - c0) * 1e6 / rounds / 32
				u := (usec() - u0) / rounds / 32
				if b, ok := best[f]; !ok || c < b {
					best[f] = c
				}
				if b, ok := bestU[f]; !ok || u < b {
					bestU[f] = u
				}
			}
		}
		for _, f := range files {
			fmt.Printf("amount %d %-20s cpu %.2f us/dec  script %.2f us/dec\n", amount, f, best[f], bestU[f])
		}
	}
}
