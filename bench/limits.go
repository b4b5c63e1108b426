package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/limits"
)

// deciders are the goroutines that ask for decisions.
const deciders = 64

// limitCase is one kind of traffic that limits decide.
type limitCase struct {
	name    string
	clients int
	refused bool // nearly all are
	goal    float64
}

var limitCases = []limitCase{
	{"1,000 clients", 1000, false, 1.8},
	{"one client", 1, false, 3},
	{"1,000 clients, nearly all refused", 1000, true, 2.5},
}

// decisions measures decisions: three limits at once by ours, one by redis_rate, from as many goroutines on the same Redis.
func decisions(ctx context.Context, e *env, r *report) error {
	// The sides are libraries in this process: unlike the generator of HTTP requests, they have work to do.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU()))
	rdb := e.connect(deciders)
	defer rdb.Close()
	for _, c := range limitCases {
		e.say("limits: %s", c.name)
		ours, err := decideThree(rdb, c)
		if err != nil {
			return err
		}
		row := ratioRow{Name: c.name, Conns: deciders, Baseline: "redis_rate, one limit", Goal: c.goal}
		var a, b, ratios []float64
		for range e.plan.Rounds {
			var rates [2]float64
			for i, decide := range []func(context.Context, int64) error{ours, decideOne(rdb, c)} {
				if err := e.flush(ctx); err != nil {
					return err
				}
				if _, err := perSecond(ctx, e.plan.Warmup, decide); err != nil {
					return err
				}
				if rates[i], err = perSecond(ctx, e.plan.Duration, decide); err != nil {
					return err
				}
			}
			a, b, ratios = append(a, rates[0]), append(b, rates[1]), append(ratios, rates[0]/rates[1])
		}
		row.Ours, row.Theirs, row.Ratio = spreadOf(a), spreadOf(b), spreadOf(ratios)
		r.Decisions = append(r.Decisions, row)
	}
	if err := limitMemory(ctx, e, rdb, r); err != nil {
		return err
	}
	e.say("limits: the model in Go")
	return model(ctx, r)
}

// decideThree returns a decision over three limits of different algorithms.
func decideThree(rdb redis.UniversalClient, c limitCase) (func(context.Context, int64) error, error) {
	amount := int64(limits.MaxAmount)
	if c.refused {
		amount = 1
	}
	var rules []*limits.Rule
	for i, a := range []limits.Algorithm{limits.TokenBucket, limits.SlidingWindowCounter, limits.FixedWindow} {
		rule, err := limits.Compile(limits.Limit{Name: fmt.Sprint("bench-", i), Algorithm: a, Per: limits.PerClient, Amount: amount, Window: time.Hour})
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	limiter, clients := limits.New(rdb, false), clientNames(c.clients)
	return func(ctx context.Context, i int64) error {
		_, err := limiter.Decide(ctx, limits.Request{Rules: rules, Subject: limits.Subject{Client: pick(clients, i)}, Cost: 1})
		return err
	}, nil
}

// decideOne returns redis_rate's decision over one limit.
func decideOne(rdb *redis.Client, c limitCase) func(context.Context, int64) error {
	limit := redis_rate.Limit{Rate: limits.MaxAmount, Burst: limits.MaxAmount, Period: time.Hour}
	if c.refused {
		limit = redis_rate.PerHour(1)
	}
	limiter, clients := redis_rate.NewLimiter(rdb), clientNames(c.clients)
	return func(ctx context.Context, i int64) error {
		_, err := limiter.Allow(ctx, pick(clients, i), limit)
		return err
	}
}

func clientNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("client-", i)
	}
	return names
}

// pick spreads requests over all names, neighbours apart.
func pick(names []string, i int64) string { return names[i*7919%int64(len(names))] }

// perSecond has the deciders do something for a while, and returns how often they did it per second.
func perSecond(ctx context.Context, d time.Duration, do func(context.Context, int64) error) (float64, error) {
	var n atomic.Int64
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	began := time.Now()
	for range deciders {
		all.Go(func() {
			for time.Since(began) < d {
				if err := do(ctx, n.Add(1)); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(n.Load()) / time.Since(began).Seconds(), nil
}

// limitMemory measures what a client that was admitted once takes in Redis, by algorithm.
func limitMemory(ctx context.Context, e *env, rdb *redis.Client, r *report) error {
	limiter := limits.New(rdb, false)
	for _, a := range []limits.Algorithm{limits.FixedWindow, limits.SlidingWindowLog, limits.SlidingWindowCounter, limits.TokenBucket,
		limits.LeakyBucket, limits.Concurrency} {
		e.say("limits: memory of %s", a)
		limit := limits.Limit{Name: "per-hour", Algorithm: a, Per: limits.PerClient, Amount: 100, Window: time.Hour}
		if a == limits.Concurrency {
			limit.Window = 0
		}
		rule, err := limits.Compile(limit)
		if err != nil {
			return err
		}
		if err := e.flush(ctx); err != nil {
			return err
		}
		before, err := e.used(ctx)
		if err != nil {
			return err
		}
		for i := range e.plan.IdleClients {
			client := fmt.Sprint("client-", i)
			if _, err := limiter.Decide(ctx, limits.Request{Rules: []*limits.Rule{rule}, Cost: 1, Job: "reports-0197c3a0-8a44-7c0e-b1a4-1f6f0c1f2a55",
				Subject: limits.Subject{Client: client}}); err != nil {
				return err
			}
		}
		after, err := e.used(ctx)
		if err != nil {
			return err
		}
		r.LimitMemory = append(r.LimitMemory, memoryRow{Name: string(a), Bytes: float64(after-before) / float64(e.plan.IdleClients)})
	}
	return e.flush(ctx)
}

var modelLine = regexp.MustCompile(`(?m)^BenchmarkModel/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op` +
	`\s+\d+ B/op\s+(\d+) allocs/op`)

// model runs the benchmark of the limits' model in Go.
func model(ctx context.Context, r *report) error {
	out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkModel$",
		"-benchmem", "./internal/limits").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the model's benchmark: %w\n%s", err, out)
	}
	for _, m := range modelLine.FindAllStringSubmatch(string(out), -1) {
		ns, _ := strconv.ParseFloat(m[2], 64)
		allocs, _ := strconv.Atoi(m[3])
		r.Model = append(r.Model, modelRow{Name: m[1], Nanoseconds: ns, Allocs: allocs})
	}
	if len(r.Model) == 0 {
		return fmt.Errorf("the model's benchmark printed no figure:\n%s", out)
	}
	return nil
}
