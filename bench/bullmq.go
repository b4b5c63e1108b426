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

// bullFiles are the program and the files from which npm installs its library. npm works in a copy,
// so that it leaves nothing in the source tree.
//
//go:embed bullmq/package.json bullmq/package-lock.json bullmq/limited.mjs
var bullFiles embed.FS

// limiterRow compares one setting of BullMQ's limiter with our drain at the same rate.
type limiterRow struct {
	Configured   float64
	Limiter      string // BullMQ's setting: max per duration
	Ours, Theirs drainRow
}

// failing returns the error of a drain in percent of its rate: that of the mean or that of the
// fullest second, whichever is larger.
func failing(d drainRow) float64 {
	return math.Max(math.Abs(d.deviation()), 100*float64(d.Second-d.allowed(second))/d.Configured)
}

// met reports whether our error is at most a tenth of theirs.
func (l limiterRow) met() bool { return failing(l.Ours) <= failing(l.Theirs)/10 }

// bullmq measures BullMQ's global limiter, which is the nearest thing to our drain. It does so with
// one start per interval, which promises the same as a rate with burst 1, and with as many starts a
// second as the rate, as in BullMQ's manual.
func bullmq(ctx context.Context, e *env, r *report) error {
	dir := filepath.Join(e.dir, "bullmq")
	node, reason := e.installBull(ctx, dir)
	if reason != "" {
		e.say("bullmq: left out: %s", reason)
		r.NoBullMQ = reason
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
			row := limiterRow{Configured: rate,
				Limiter: fmt.Sprintf("%d in %d ms", limit.most, limit.ms), Ours: ours}
			if row.Theirs, err = e.bullAt(ctx, node, dir, rate, limit.most, limit.ms); err != nil {
				return fmt.Errorf("%s: %w", row.Limiter, err)
			}
			r.Limiters = append(r.Limiters, row)
		}
	}
	return nil
}

// installTime bounds npm, which would try for minutes without a network.
const installTime = 90 * time.Second

// installBull prepares a copy of bench/bullmq and returns the path of node. If it can't, it returns
// the reason.
func (e *env) installBull(ctx context.Context, dir string) (node, reason string) {
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

// bullAt measures BullMQ in the same way as pacedBy measures our drain.
func (e *env) bullAt(ctx context.Context, node, dir string, rate float64,
	most, ms int) (drainRow, error) {
	defer e.stopAll()
	row := drainRow{Configured: rate, Workers: workers, Span: e.plan.LimiterSpan,
		Burst: float64(most)}
	if err := e.flush(ctx); err != nil {
		return row, err
	}
	b, err := e.startRecorder(ctx)
	if err != nil {
		return row, err
	}
	program, url := filepath.Join(dir, "limited.mjs"), "redis://"+e.redis
	add := exec.CommandContext(ctx, node, program, "add", url,
		fmt.Sprint(e.backlog(rate, row.Span)))
	if out, err := add.CombinedOutput(); err != nil {
		return row, fmt.Errorf("adding jobs: %w\n%s", err, out)
	}
	for i := range workers {
		p, err := e.start(fmt.Sprintf("bullmq-%d-%d-%d", most, ms, i+1), node, program, "work", url,
			string(b)+"/job", fmt.Sprint(most), fmt.Sprint(ms))
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
