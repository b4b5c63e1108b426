package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/forebay/forebay/internal/leaky"
)

const (
	// pollTime is the longest time between two calls of the line, in case a wake-up is missed. It
	// costs four small calls a second.
	pollTime = 250 * time.Millisecond
	// wakePause gathers wake-ups while the concurrency is used up: each call that ends sends one.
	// At 500 ends a second a call to the line for each would cost more than the slots are worth.
	wakePause = 5 * time.Millisecond
	// callTime bounds every call to the line. A healthy Redis answers within a millisecond.
	callTime = 2 * time.Second
	// Pauses after a failed release, doubling.
	firstRest   = 50 * time.Millisecond
	longestRest = time.Second
)

// dispatch releases jobs and sends their tickets until ctx ends.
func (d *drain) dispatch(ctx context.Context) {
	rest := time.Duration(0)
	for ctx.Err() == nil {
		wait, reason, err := d.release()
		if err != nil {
			if rest == 0 {
				d.log.Warn("the drain stands still", "error", err)
			}
			rest = min(max(2*rest, firstRest), longestRest)
			sleep(ctx, rest)
			continue
		}
		if rest > 0 {
			d.log.Info("the drain goes on")
			rest = 0
		}
		d.await(ctx, wait, reason)
	}
}

// release calls the line once and sends the tickets that it grants. A stop doesn't interrupt it:
// other workers get the tickets then. If sending fails, the jobs return to the line within 2 s.
func (d *drain) release() (wait time.Duration, reason string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	sent := time.Now()
	r, err := d.line.Release(ctx)
	if err != nil {
		return 0, "", err
	}
	d.clock.Observe(sent, time.Now(), r.Now)
	stopped, err := d.stopped(ctx, &r)
	if err != nil {
		return 0, "", err
	}
	d.metrics.released(d.name, r)
	for _, e := range r.Ended {
		d.log.Info("job ended in the line", "job_id", e.ID, "status", e.State, "code", e.Code)
	}
	for _, name := range r.Lapsed.Names() {
		s := d.line.Settings()
		was, config := r.Lapsed.Apply(s).Text(name), s.Text(name)
		d.log.Info("an override has ended: the config is in force again", "setting", name,
			"was", was, "config", config)
		if d.lapsed != nil {
			d.lapsed(d.name, name, was, config)
		}
	}
	if r.Returned > 0 {
		d.log.Warn("jobs of a lost worker are back in the line", "jobs", r.Returned)
	}
	switch d.bottleneck.observe(sent, r.Reason) {
	case nowHeld:
		d.log.Warn("the drain rate can't be reached: calls take too long for the concurrency; " +
			"raise drain.concurrency")
	case nowFree:
		d.log.Info("concurrency no longer holds the drain back")
	}
	if stopped {
		return r.Wait, leaky.OnQueuePaused, nil // granted jobs return by themselves
	}
	if err := d.queue.Send(ctx, r.Tickets); err != nil {
		return 0, "", err
	}
	return r.Wait, r.Reason, nil
}

// stopped reports whether the queue is paused, and tells the line. It checks only if there is a
// sign of a pause: tickets that no worker took.
func (d *drain) stopped(ctx context.Context, r *leaky.Release) (bool, error) {
	if r.Returned == 0 && r.Reason != leaky.OnQueuePaused && !d.queuePaused {
		return false, nil
	}
	paused, err := d.queue.Paused(ctx)
	if err != nil {
		return false, fmt.Errorf("look whether the queue is paused: %w", err)
	}
	if paused || r.Reason == leaky.OnQueuePaused {
		if err := d.line.QueuePaused(ctx, paused); err != nil {
			return false, err
		}
	}
	if paused {
		r.Returned = 0 // no worker was lost
	}
	switch {
	case paused && !d.queuePaused:
		d.log.Warn("the queue was paused by asynq's own tools: no job starts until it is resumed "+
			"there", "queue", d.name)
	case !paused && d.queuePaused:
		d.log.Info("the queue was resumed", "queue", d.name)
	}
	d.queuePaused = paused
	return paused, nil
}

// await sleeps until it is worth calling the line again.
func (d *drain) await(ctx context.Context, wait time.Duration, reason string) {
	if reason == "" {
		return // the bound of one call was reached: there are more
	}
	began := time.Now()
	timer := time.NewTimer(min(wait, pollTime))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-d.wake:
		if reason == leaky.OnConcurrency {
			sleep(ctx, wakePause-time.Since(began))
		}
	}
	d.metrics.idle.WithLabelValues(d.name, reason).Add(time.Since(began).Seconds())
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// bottleneck notices when concurrency, and not the rate, limits a drain for long: then calls take
// too long for the configured rate.
type bottleneck struct {
	held  bool      // as last reported
	since time.Time // since when the line reports the opposite of held; zero while it doesn't
}

type change int

const (
	noChange change = iota
	nowHeld
	nowFree
)

// bottleneckTime is how long a change must last before it is reported: one slow call is no change.
const bottleneckTime = 10 * time.Second

func (b *bottleneck) observe(now time.Time, reason string) change {
	if (reason == leaky.OnConcurrency) == b.held {
		b.since = time.Time{}
		return noChange
	}
	if b.since.IsZero() {
		b.since = now
	}
	if now.Sub(b.since) < bottleneckTime {
		return noChange
	}
	b.held, b.since = !b.held, time.Time{}
	if b.held {
		return nowHeld
	}
	return nowFree
}
