package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bullFiles are the program and what npm needs to install its library: into a copy, so that nothing is left in the tree.
//
//go:embed bullmq/package.json bullmq/package-lock.json bullmq/limited.mjs
var bullFiles embed.FS

// limiterRow is one way of BullMQ's limiter at one rate, beside our drain at the same rate.
type limiterRow struct {
	Configured   float64
	Limiter      string // as BullMQ has it: max per duration
	Ours, Theirs drainRow
}

// failing is how far a drain is off in percent of its rate: in the mean, or in the fullest second, whichever is more.
func failing(d drainRow) float64 {
	return math.Max(math.Abs(d.deviation()), 100*float64(d.Second-d.allowed(second))/d.Configured)
}

// met: our error is at most a tenth of theirs.
func (l limiterRow) met() bool { return failing(l.Ours) <= failing(l.Theirs)/10 }

// bullmq measures BullMQ's global limiter, which is the nearest thing to our drain: with one start an interval, which promises the
// same as rate and burst 1, and with a second's starts a second, as its manual has it.
func bullmq(ctx context.Context, e *env, r *report) error {
	dir := filepath.Join(e.dir, "bullmq")
	node, why := e.installBull(ctx, dir)
	if why != "" {
		e.say("bullmq: left out: %s", why)
		r.NoBullMQ = why
		return nil
	}
	for _, rate := range e.plan.LimiterRates {
		e.say("bullmq: ours at %v/s", rate)
		ours, err := e.pacedBy(ctx, rate, workers, e.plan.LimiterSpan)
		if err != nil {
			return err
		}
		for _, limit := range []struct{ most, ms int }{{1, int(1000 / rate)}, {int(rate), 1000}} {
			e.say("bullmq: %d in %d ms", limit.most, limit.ms)
			row := limiterRow{Configured: rate, Limiter: fmt.Sprintf("%d in %d ms", limit.most, limit.ms), Ours: ours}
			if row.Theirs, err = e.bullAt(ctx, node, dir, rate, limit.most, limit.ms); err != nil {
				return fmt.Errorf("%s: %w", row.Limiter, err)
			}
			r.Limiters = append(r.Limiters, row)
		}
	}
	return nil
}

// installTime bounds npm: without a network it would try for minutes.
const installTime = 90 * time.Second

// installBull prepares a copy of bench/bullmq. Why says why there is none.
func (e *env) installBull(ctx context.Context, dir string) (node, why string) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", "node is not installed"
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", "npm is not installed"
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err.Error()
	}
	for _, name := range []string{"package.json", "package-lock.json", "limited.mjs"} {
		text, err := bullFiles.ReadFile("bullmq/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return "", err.Error()
		}
	}
	e.say("bullmq: npm ci")
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	install.WaitDelay = time.Second
	if out, err := install.CombinedOutput(); err != nil {
		e.say("npm ci: %v\n%s", err, out)
		return "", fmt.Sprintf("npm ci failed (%v)", err)
	}
	return node, ""
}

// bullAt measures BullMQ as pacedBy does ours.
func (e *env) bullAt(ctx context.Context, node, dir string, rate float64, most, ms int) (drainRow, error) {
	defer e.stopAll()
	row := drainRow{Configured: rate, Workers: workers, Span: e.plan.LimiterSpan, Burst: float64(most)}
	if err := e.flush(ctx); err != nil {
		return row, err
	}
	b, err := e.startRecorder(ctx)
	if err != nil {
		return row, err
	}
	program, url := filepath.Join(dir, "limited.mjs"), "redis://"+e.redis
	if out, err := exec.CommandContext(ctx, node, program, "add", url, fmt.Sprint(e.backlog(rate, row.Span))).CombinedOutput(); err != nil {
		return row, fmt.Errorf("adding jobs: %w\n%s", err, out)
	}
	for i := range workers {
		p, err := e.start(fmt.Sprintf("bullmq-%d-%d-%d", most, ms, i+1), node, program, "work", url, string(b)+"/job", fmt.Sprint(most), fmt.Sprint(ms))
		if err != nil {
			return row, err
		}
		if err := e.await(ctx, p, func() error {
			text, err := os.ReadFile(p.log)
			if err == nil && !strings.Contains(string(text), "ready") {
				err = errors.New("it hasn't said so")
			}
			return err
		}); err != nil {
			return row, err
		}
	}
	return row, e.observe(ctx, b, &row)
}
