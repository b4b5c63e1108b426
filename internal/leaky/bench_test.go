package leaky_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// batch is the number of offers that one script call takes.
const batch = 64

// newBenchLine returns a line on Redis's clock that accepts all offers.
func newBenchLine(b *testing.B) (*leaky.Line, redis.UniversalClient) {
	b.Helper()
	rdb := redistest.Client(b)
	r, err := leaky.ParseRate("1000/s")
	if err != nil {
		b.Fatal(err)
	}
	return leaky.New(rdb, leaky.Settings{
		Backend:  redistest.Name(b, "bench"),
		Drain:    leaky.Drain{Rate: r, Burst: 1, Concurrency: 100},
		Room:     leaky.Room{Capacity: 1 << 30, MaxWait: 1 << 60, ClientShare: 1},
		Attempts: 3,
	}), rdb
}

func benchOffer(backend string, n int) leaky.Offer {
	return leaky.Offer{Job: jobs.Job{ID: jobs.NewID(backend), Operation: "monthly-report",
		Client: "client-" + strconv.Itoa(n%16), Tier: "free",
		Priority: jobs.Normal, Payload: []byte(strings.Repeat("x", 256))}, Weight: 1,
		MaxAge: time.Hour, Keep: time.Hour}
}

// reportScripts reports the CPU time that Redis took for each script call of do.
func reportScripts(b *testing.B, rdb redis.UniversalClient, do func()) {
	b.Helper()
	before, callsBefore := redisLoad(b, rdb)
	b.ResetTimer()
	do()
	b.StopTimer()
	after, callsAfter := redisLoad(b, rdb)
	b.ReportMetric((after-before)*1e6/float64(callsAfter-callsBefore), "redis-µs/call")
}

// redisLoad returns Redis's CPU time in seconds, and the number of script calls, since it was
// started.
func redisLoad(b *testing.B, rdb redis.UniversalClient) (cpu float64, calls int64) {
	b.Helper()
	info, err := rdb.InfoMap(context.Background(), "cpu", "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			b.Fatal(err)
		}
		cpu += seconds
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_evalsha"], "calls="),
		",")
	if text != "" {
		if calls, err = strconv.ParseInt(text, 10, 64); err != nil {
			b.Fatal(err)
		}
	}
	return cpu, calls
}

// BenchmarkOfferBatch measures one call of the offer script with 64 jobs.
func BenchmarkOfferBatch(b *testing.B) {
	line, rdb := newBenchLine(b)
	reportScripts(b, rdb, func() {
		offers := make([]leaky.Offer, batch)
		for b.Loop() {
			for i := range offers {
				offers[i] = benchOffer(line.Settings().Backend, i)
			}
			if _, err := line.OfferAll(context.Background(), offers); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAdmitBatch measures one call of the offer script with 64 jobs of 16 clients, each under
// three limits.
func BenchmarkAdmitBatch(b *testing.B) {
	line, rdb := newBenchLine(b)
	line.Limited(limits.Script{})
	limiter := limits.New(rdb, false)
	var rules []*limits.Rule
	for _, l := range []limits.Limit{
		{Name: "per-minute", Algorithm: limits.SlidingWindowCounter, Per: limits.PerClient,
			Amount: limits.MaxAmount, Window: time.Minute},
		{Name: "bucket", Algorithm: limits.TokenBucket, Per: limits.PerClientOperation,
			Amount: 1_000_000, Window: time.Minute},
		{Name: "all", Algorithm: limits.TokenBucket, Per: limits.PerGlobal, Amount: 1_000_000,
			Window: time.Second},
	} {
		l.Owner = line.Settings().Backend
		rule, err := limits.Compile(l)
		if err != nil {
			b.Fatal(err)
		}
		rules = append(rules, rule)
	}
	reportScripts(b, rdb, func() {
		offers := make([]leaky.Offer, batch)
		for b.Loop() {
			for i := range offers {
				o := benchOffer(line.Settings().Backend, i)
				part, err := limiter.Part(limits.Request{Rules: rules, Cost: 1, Job: o.Job.ID,
					Subject: limits.Subject{Client: o.Job.Client, Operation: o.Job.Operation}})
				if err != nil {
					b.Fatal(err)
				}
				o.Charge = part.Charge()
				offers[i] = o
			}
			places, err := line.OfferAll(context.Background(), offers)
			if err != nil || places[batch-1].Outcome != leaky.Accepted {
				b.Fatal(places[batch-1], err)
			}
		}
	})
}

// BenchmarkOffer measures 64 callers at once.
func BenchmarkOffer(b *testing.B) {
	line, rdb := newBenchLine(b)
	b.SetParallelism(batch)
	reportScripts(b, rdb, func() {
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				if _, err := line.Offer(context.Background(),
					benchOffer(line.Settings().Backend, n)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkLook measures 64 callers at once, with 10,000 jobs waiting.
func BenchmarkLook(b *testing.B) {
	line, rdb := newBenchLine(b)
	var ids []string
	for range 10_000 / batch {
		offers := make([]leaky.Offer, batch)
		for i := range offers {
			offers[i] = benchOffer(line.Settings().Backend, i)
			ids = append(ids, offers[i].Job.ID)
		}
		if _, err := line.OfferAll(context.Background(), offers); err != nil {
			b.Fatal(err)
		}
	}
	b.SetParallelism(batch)
	reportScripts(b, rdb, func() {
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				if _, err := line.Look(context.Background(), ids[n%len(ids)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkRun measures a job from its release to its end.
func BenchmarkRun(b *testing.B) {
	line, rdb := newBenchLine(b)
	if err := line.Tune(context.Background(), leaky.Override{Rate: &leaky.Unlimited},
		"bench"); err != nil {
		b.Fatal(err)
	}
	var tickets []leaky.Ticket
	reportScripts(b, rdb, func() {
		for n := 0; b.Loop(); n++ {
			for len(tickets) == 0 {
				offers := make([]leaky.Offer, batch)
				for i := range offers {
					offers[i] = benchOffer(line.Settings().Backend, i)
				}
				if _, err := line.OfferAll(context.Background(), offers); err != nil {
					b.Fatal(err)
				}
				r, err := line.Release(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				tickets = r.Tickets
			}
			ticket := tickets[0]
			tickets = tickets[1:]
			if s, err := line.Start(context.Background(), ticket, "bench"); err != nil ||
				s.Outcome != leaky.Go {
				b.Fatal(s.Outcome, err)
			}
			if _, _, err := line.Settle(context.Background(),
				leaky.Settlement{Ticket: ticket, Owner: "bench", To: jobs.Succeeded}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMine measures one page of the list of a client with 10,000 jobs, with a filter that none
// matches, and with one that matches those that wait.
func BenchmarkMine(b *testing.B) {
	line, rdb := newBenchLine(b)
	for range 10_000 / batch {
		offers := make([]leaky.Offer, batch)
		for i := range offers {
			offers[i] = benchOffer(line.Settings().Backend, 0)
		}
		if _, err := line.OfferAll(context.Background(), offers); err != nil {
			b.Fatal(err)
		}
	}
	for _, f := range []leaky.MineFilter{{Status: "failed", Limit: 1},
		{Status: "queued", Limit: 50}, {Limit: 50}, {Operation: "other", Limit: 1}} {
		f.Client = "client-0"
		b.Run(f.Status+f.Operation+strconv.Itoa(f.Limit), func(b *testing.B) {
			reportScripts(b, rdb, func() {
				for b.Loop() {
					page, err := line.Mine(context.Background(), f)
					if err != nil {
						b.Fatal(err)
					}
					f.After = page.Next
				}
			})
		})
	}
}

// BenchmarkExplainAndDues measures one explanation, and one look at the deadlines, of a line of
// 20,000 jobs.
func BenchmarkExplainAndDues(b *testing.B) {
	line, rdb := newBenchLine(b)
	last := ""
	for range 20_000 / batch {
		offers := make([]leaky.Offer, batch)
		for i := range offers {
			offers[i] = benchOffer(line.Settings().Backend, i)
			last = offers[i].Job.ID
		}
		if _, err := line.OfferAll(context.Background(), offers); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("explain", func(b *testing.B) {
		reportScripts(b, rdb, func() {
			for b.Loop() {
				if _, err := line.Explain(context.Background(), last); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("dues", func(b *testing.B) {
		reportScripts(b, rdb, func() {
			for b.Loop() {
				if _, err := line.Dues(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
