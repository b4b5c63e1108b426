package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forebay/forebay/bench/load"
)

// side is one of the programs that are compared.
type side struct {
	name   string
	target load.Target
	flush  bool // Redis is emptied before each round; otherwise jobs pile up from round to round
}

// front measures how fast requests are answered. No worker runs, so lines only grow.
func front(ctx context.Context, e *env, r *report) error {
	e.say("front: starting")
	defer e.stopAll()
	plain, err := e.baseline(ctx, "plain", http.StatusOK)
	if err != nil {
		return err
	}
	ping, err := e.baseline(ctx, "ping", http.StatusOK)
	if err != nil {
		return err
	}
	enqueue, err := e.baseline(ctx, "enqueue", http.StatusAccepted)
	if err != nil {
		return err
	}
	enqueue.flush = true
	f, err := e.startForebay(ctx, 0, "unlimited", "127.0.0.1:9") // the backend is never called
	if err != nil {
		return err
	}
	target := func(status int, requests [][]byte) load.Target {
		return load.Target{Addr: f.addr, Status: status, Requests: requests}
	}
	accepted := side{"accepted (202)",
		target(http.StatusAccepted, f.submissions(e.plan.Clients, openKey)), true}
	refusals := target(http.StatusTooManyRequests, f.submissions(e.plan.Clients, shutKey))
	rejected := side{"rejected (429)", refusals, false}
	again := side{"rejected again, before its Retry-After", refusals, false}

	for _, c := range []struct {
		ours, baseline side
		conns          int
		goal           float64
	}{
		{accepted, enqueue, 64, 1.0},
		{accepted, enqueue, 256, 1.2},
		{rejected, ping, 64, 1.1},
		{again, plain, 64, 0.6},
	} {
		if err := e.compare(ctx, r, c.ours, c.baseline, c.conns, c.goal); err != nil {
			return err
		}
	}
	if err := e.flood(ctx, r, rejected.target, accepted.target); err != nil {
		return err
	}
	// This baseline starts only now, since an earlier flush would have removed its hash.
	hgetall, err := e.baseline(ctx, "hgetall", http.StatusOK)
	if err != nil {
		return err
	}
	polls, err := f.polls(ctx, e.plan)
	if err != nil {
		return err
	}
	status := side{"status (200)", target(http.StatusOK, polls), false}
	if err := e.compare(ctx, r, status, asGet(hgetall), 64, 1.0); err != nil {
		return err
	}
	// Before stored, which begins with an empty Redis.
	if r.Lone.Again, err = e.scriptsEach(ctx, refusals); err != nil {
		return err
	}
	if err := e.stored(ctx, r, f, plain, ping); err != nil {
		return err
	}

	e.say("front: latency of a single connection")
	sides := []side{plain, enqueue, accepted}
	results, err := e.interleave(ctx, 1, sides...)
	if err != nil {
		return err
	}
	for i, s := range sides {
		row := latencyRow{Name: s.name}
		var p50, p99 []float64
		for _, result := range results[i] {
			p50 = append(p50, float64(quantile(result.Latencies, 0.5).Microseconds()))
			p99 = append(p99, float64(quantile(result.Latencies, 0.99).Microseconds()))
		}
		row.P50, row.P99 = spreadOf(p50), spreadOf(p99)
		r.Latencies = append(r.Latencies, row)
	}
	var ratios []float64
	for round := range results[0] {
		ours, theirs := results[2][round].Latencies, results[1][round].Latencies
		ratios = append(ratios, float64(quantile(ours, 0.5))/float64(quantile(theirs, 0.5)))
	}
	r.Lone.Ratio = spreadOf(ratios)
	r.Lone.Scripts, err = e.scriptsEach(ctx, accepted.target)
	return err
}

// scriptsEach returns the mean number of script calls for one answer, when requests come one at a
// time.
func (e *env) scriptsEach(ctx context.Context, t load.Target) (float64, error) {
	before, _, err := e.commands(ctx)
	if err != nil {
		return 0, err
	}
	result, err := load.Run(ctx, t, load.Plan{Conns: 1, Duration: time.Second})
	if err != nil {
		return 0, err
	}
	after, _, err := e.commands(ctx)
	return float64(after-before) / float64(result.Answers), err
}

// flood measures the latency of clients within their limits, alone and beside clients that are
// refused.
func (e *env) flood(ctx context.Context, r *report, refused, within load.Target) error {
	e.say("front: a flood of refusals")
	var alone, beside, ratios, rates []float64
	plan := load.Plan{Conns: 4, Warmup: e.plan.Warmup, Duration: e.plan.Duration}
	p99 := func(result load.Result) float64 {
		return float64(quantile(result.Latencies, 0.99).Microseconds())
	}
	for range e.plan.Rounds {
		if err := e.flush(ctx); err != nil {
			return err
		}
		quiet, err := load.Run(ctx, within, plan)
		if err != nil {
			return err
		}
		flooding := make(chan error, 1)
		var flood load.Result
		go func() {
			var err error
			flood, err = load.Run(ctx, refused,
				load.Plan{Conns: 60, Warmup: plan.Warmup, Duration: plan.Duration})
			flooding <- err
		}()
		busy, err := load.Run(ctx, within, plan)
		if err := errors.Join(err, <-flooding); err != nil {
			return err
		}
		alone, beside = append(alone, p99(quiet)), append(beside, p99(busy))
		ratios, rates = append(ratios, p99(busy)/p99(quiet)), append(rates, flood.PerSecond())
	}
	r.Flood = floodFigures{Alone: spreadOf(alone), Beside: spreadOf(beside),
		Ratio: spreadOf(ratios), Refused: spreadOf(rates).Median}
	return nil
}

// baseline starts one of the baseline programs. Its requests are POSTs of the bare payload.
func (e *env) baseline(ctx context.Context, kind string, status int) (side, error) {
	addr, err := freeAddress()
	if err != nil {
		return side{}, err
	}
	if _, err := e.serve(ctx, kind, "baseline", "http://"+addr, "-kind", kind, "-listen", addr,
		"-redis", e.redis); err != nil {
		return side{}, err
	}
	names := map[string]string{"plain": "net/http", "ping": "net/http + PING",
		"hgetall": "net/http + HGETALL", "enqueue": "net/http + asynq Enqueue"}
	return side{name: names[kind], target: load.Target{Addr: addr, Status: status,
		Requests: [][]byte{load.Request("POST", addr, "/", payload)}}}, nil
}

// asGet returns s with requests that have no body, as polls have none.
func asGet(s side) side {
	s.target.Requests = [][]byte{load.Request("GET", s.target.Addr, "/", nil)}
	return s
}

// polls returns GETs of the status of waiting jobs, each with the key of the job's client.
func (f *forebay) polls(ctx context.Context, p plan) ([][]byte, error) {
	requests := make([][]byte, p.Polled)
	for i := range requests {
		path, err := f.submit(ctx, i%p.Clients)
		if err != nil {
			return nil, err
		}
		requests[i] = load.Request("GET", f.addr, path, nil,
			"Authorization: Bearer "+fmt.Sprintf(openKey, i%p.Clients))
	}
	return requests, nil
}

// compare measures ours against a baseline and adds the ratio to the report.
func (e *env) compare(ctx context.Context, r *report, ours, baseline side, conns int,
	goal float64) error {
	e.say("front: %s on %d connections", ours.name, conns)
	results, err := e.interleave(ctx, conns, ours, baseline)
	if err != nil {
		return err
	}
	var a, b, ratios []float64
	for i := range results[0] {
		a, b = append(a, results[0][i].PerSecond()), append(b, results[1][i].PerSecond())
		ratios = append(ratios, a[i]/b[i])
	}
	r.Ratios = append(r.Ratios, ratioRow{
		Name: ours.name, Conns: conns, Baseline: baseline.name,
		Ours: spreadOf(a), Theirs: spreadOf(b), Ratio: spreadOf(ratios), Goal: goal,
	})
	return nil
}

// interleave runs all sides in each round, in reverse order in every other round. It returns the
// results by side and round.
func (e *env) interleave(ctx context.Context, conns int, sides ...side) ([][]load.Result, error) {
	results := make([][]load.Result, len(sides))
	for round := range e.plan.Rounds {
		for k := range sides {
			i := k
			if round%2 == 1 {
				i = len(sides) - 1 - k
			}
			if sides[i].flush {
				if err := e.flush(ctx); err != nil {
					return nil, err
				}
			}
			result, err := load.Run(ctx, sides[i].target,
				load.Plan{Conns: conns, Warmup: e.plan.Warmup, Duration: e.plan.Duration})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].name, err)
			}
			if result.Answers == 0 {
				return nil, fmt.Errorf("%s: no answer in %v", sides[i].name, e.plan.Duration)
			}
			results[i] = append(results[i], result)
		}
	}
	return results, nil
}
