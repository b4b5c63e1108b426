package main

import (
	"context"
	"fmt"
	"time"

	"github.com/forebay/forebay/bench/load"
)

// callsAtOnce is the concurrency of both sides. Forebay's is in its config (forebay.go).
const callsAtOnce = 100

// fullSpeed measures how many jobs a second one worker process drains at the rate unlimited. The
// baseline is a plain worker of asynq that makes the same calls. In each round the same number of
// jobs waits for one side, then for the other.
func fullSpeed(ctx context.Context, e *env, r *report) error {
	defer e.stopAll()
	f, b, err := e.startBack(ctx, 0, "unlimited")
	if err != nil {
		return err
	}
	enqueue, err := e.baseline(ctx, "enqueue", 202)
	if err != nil {
		return err
	}
	ours := func() error {
		if err := e.fill(ctx, f, e.plan.Drained); err != nil {
			return err
		}
		return e.startWorkers(ctx, f, 1)
	}
	theirs := func() error {
		if _, err := load.Run(ctx, enqueue.target,
			load.Plan{Conns: 16, Count: e.plan.Drained}); err != nil {
			return err
		}
		_, err := e.start("asynqworker", e.program("asynqworker"), "-redis", e.redis,
			"-backend", string(b)+"/job", "-concurrency", fmt.Sprint(callsAtOnce))
		return err
	}
	var a, p, ratios []float64
	for round := range e.plan.Rounds {
		e.say("full speed: round %d of %d", round+1, e.plan.Rounds)
		sides := []func() error{ours, theirs}
		var rates [2]float64
		for k := range sides {
			i := (k + round) % 2 // the sides take turns at going first
			if rates[i], err = e.drained(ctx, b, sides[i]); err != nil {
				return err
			}
		}
		a, p, ratios = append(a, rates[0]), append(p, rates[1]), append(ratios, rates[0]/rates[1])
	}
	r.FullSpeed = append(r.FullSpeed, ratioRow{Name: "jobs called", Baseline: "asynq worker",
		Ours: spreadOf(a), Theirs: spreadOf(p), Ratio: spreadOf(ratios), Goal: 0.5})
	return nil
}

// drained lets a side fill its queue and start its worker. It returns the calls per second between
// the first tenth of them and the last, so that starting and ending don't count.
func (e *env) drained(ctx context.Context, b backend,
	side func() error) (perSecond float64, err error) {
	if err := e.flush(ctx); err != nil {
		return 0, err
	}
	if err := b.forget(ctx); err != nil {
		return 0, err
	}
	running := len(e.running)
	if err := side(); err != nil {
		return 0, err
	}
	n := int(e.plan.Drained)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got, err := b.count(ctx)
		if err != nil {
			return 0, err
		}
		if got >= n {
			break
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d of %d calls in two minutes", got, n)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	calls, err := b.calls(ctx)
	if err != nil {
		return 0, err
	}
	for len(e.running) > running { // otherwise this worker would take the next one's jobs
		e.running[len(e.running)-1].stop()
		e.running = e.running[:len(e.running)-1]
	}
	first, last := n/10, n-n/10-1
	return float64(last-first) / (float64(calls[last].At-calls[first].At) / 1e6), nil
}
