package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/transfer"
)

const (
	// startTime is how long a released job waits for its start. After that the line releases it
	// again.
	startTime = 2 * time.Second
	// longestSleep caps a sleep until a due time, which is at most 50 ms ahead by the line's clock.
	longestSleep = time.Second
	// settleTime is how long a settlement is repeated. The lease may have expired by then, but a
	// late settlement counts until a release takes the job back, which none can while Redis is
	// unavailable.
	settleTime = 30 * time.Second
	// storeTime bounds how long the job's end is delayed by storing the answer. It is well within a
	// lease.
	storeTime = 2 * time.Second
)

// handle makes one attempt at the ticket's job. The queue calls it, each time in a goroutine of its
// own.
func (d *drain) handle(t jobs.Ticket) {
	one := d.runs.enter(t)
	if one == nil {
		return
	}
	defer d.runs.leave(one)
	started, ok := d.start(one)
	if !ok {
		return
	}
	v, took := d.attempt(one, started)
	if v.word == wordLost {
		d.lost(started, took)
		return
	}
	v.Ticket, v.Owner = t, d.owner
	if v.Sign != leaky.Throttled { // a refusal doesn't show how long calls take
		v.Took = took
	}
	if started.Job.Shared && v.Result.Storing != "" && !d.part(started, &v) {
		return
	}
	// Before the job is settled, so that a client that sees its end finds the answer stored, or the
	// older one removed.
	d.learn(started, v)
	d.settle(started, v)
}

// start claims the job shortly before it is due. It returns false if this worker must not run it,
// or stops.
func (d *drain) start(one *run) (leaky.Started, bool) {
	select {
	case <-d.runs.stopping:
		return leaky.Started{}, false
	case <-time.After(d.clock.Until(one.ticket.Due, longestSleep) - leaky.StartAhead):
	}
	var s leaky.Started
	first := time.Now() // if a reply is lost, the lease began with the first call
	err := d.repeat(startTime, 0, d.runs.stopping, func(ctx context.Context) (err error) {
		sent := time.Now()
		if s, err = d.line.Start(ctx, one.ticket, d.owner); err != nil {
			return err
		}
		d.clock.Observe(sent, time.Now(), s.Now)
		if s.Outcome == leaky.Go {
			d.runs.hold(one, first)
		}
		return nil
	})
	if err != nil {
		d.log.Warn("a job could not be started; it goes back to the line", "job_id", one.ticket.ID,
			"error", err)
		return leaky.Started{}, false
	}
	if s.Outcome != leaky.Go {
		d.log.Debug("a ticket is void", "job_id", one.ticket.ID, "outcome", s.Outcome)
		return leaky.Started{}, false
	}
	if s.Attempt == 1 {
		d.metrics.waits.WithLabelValues(d.name).Observe(s.Waited.Seconds())
	}
	return s, true
}

// attempt calls the backend when the job's slot has come.
func (d *drain) attempt(one *run, s leaky.Started) (v outcome, took time.Duration) {
	op, known := d.operations[s.Job.Operation]
	if !known {
		return failed(leaky.NoSign, jobs.CodeUnknownOperation,
			"The worker's configuration has no such operation for this backend."), 0
	}
	ctx, cancel := context.WithTimeoutCause(one.ctx, d.clock.Until(s.Ends, longestAge), errDeadline)
	defer cancel()
	sleep(ctx, d.clock.Until(s.Due, longestSleep))
	ctx, cancel = context.WithTimeoutCause(ctx, d.timeout, errTimeout)
	defer cancel()

	began := time.Now()
	a, err := d.caller.do(ctx, op, s.Job, s.Attempt)
	took = time.Since(began)
	d.metrics.call(s.Job.Operation, took)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, errLost) {
		return outcome{word: wordLost}, took
	}
	if err != nil {
		d.log.Debug("no answer", "job_id", s.Job.ID, "error", err)
	}
	if len(a.Left) > 0 {
		d.log.Warn("fields of the backend's answer are not kept: too long, or with control "+
			"characters", "job_id", s.Job.ID, "fields", a.Left)
	}
	v = judge(a, err, s.Attempt, d.policy, rand.Float64())
	v.said = jobs.Meta{Status: a.Status, Storing: a.Storing}
	if !v.To.Final() && errors.Is(context.Cause(one.ctx), errCanceled) {
		// The cancel came too late for this call, but in time for the next one. The sign of the
		// backend's health from this call still counts.
		v = outcome{word: wordCanceled,
			Settlement: leaky.Settlement{To: jobs.Canceled, Sign: v.Sign, Gate: v.Gate}}
	}
	return v, took
}

// part reserves an answer that is for one caller to that caller: the subscriptions of the others
// become jobs of their own. It returns false if that failed, and the job runs again.
func (d *drain) part(s leaky.Started, v *outcome) bool {
	if v.To == jobs.Failed && v.said.Status >= 500 {
		// A backend in trouble isn't called again for each of them: all fail, without its answer.
		v.Result, v.Body = jobs.Meta{}, nil
		return true
	}
	private := v.Result.Storing == jobs.Private
	for {
		var said leaky.PartOutcome
		err := d.repeat(settleTime, 0, d.runs.leaving, func(ctx context.Context) (err error) {
			said, err = d.line.Part(ctx, v.Ticket, v.Owner, private)
			return err
		})
		switch {
		case err != nil:
			d.log.Error("a private answer could not be kept from the job's other callers; the "+
				"job runs again", "job_id", s.Job.ID, "error", err)
			return false
		case said == leaky.PartForfeited:
			d.lost(s, v.Took)
			return false
		case said == leaky.Parted:
			d.log.Debug("the answer is for one caller: other subscriptions are jobs of their own",
				"job_id", s.Job.ID, "storing", v.Result.Storing)
			return true
		}
	}
}

// settle reports the outcome of the attempt to the line.
func (d *drain) settle(s leaky.Started, v outcome) {
	var said leaky.SettleOutcome
	var feedback leaky.Feedback
	err := d.repeat(settleTime, len(v.Body), d.runs.leaving, func(ctx context.Context) (err error) {
		said, feedback, err = d.line.Settle(ctx, v.Settlement)
		return err
	})
	if err != nil {
		d.log.Error("an outcome could not be stored; the job runs again", "job_id", s.Job.ID,
			"attempt", s.Attempt, "outcome", v.word, "error", err)
		return
	}
	if said != leaky.Settled {
		d.lost(s, v.Took)
		return
	}
	d.metrics.attempt(s.Job.Operation, v.word, v.To)
	d.logOutcome(s, v)
	d.reportFeedback(v, feedback)
}

// learn updates the stored answers with the backend's last answer to the job. If that fails, the
// job's outcome stays the same.
func (d *drain) learn(s leaky.Started, v outcome) {
	meta := v.Result
	switch {
	case d.stale == nil || v.To != jobs.Succeeded && v.To != jobs.Failed:
		return
	case v.To == jobs.Failed && good(v.said.Status): // it was too large, so there is no body
		return
	case v.To == jobs.Failed:
		meta = v.said // also for an answer that broke off
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime+transfer.Time(len(v.Body)))
	defer cancel()
	if err := d.stale.Learn(ctx, s.Job, meta, v.Body); err != nil {
		d.log.Warn("what is stored for later could not follow the answer", "job_id", s.Job.ID,
			"error", err)
	}
}

// lost records an attempt that doesn't count, because another worker has the job or will have it.
func (d *drain) lost(s leaky.Started, took time.Duration) {
	d.metrics.attempt(s.Job.Operation, wordLost, "")
	d.log.Warn("job lost: its lease ran out", "job_id", s.Job.ID, "operation", s.Job.Operation,
		"attempt", s.Attempt, "took", took)
}

func (d *drain) logOutcome(s leaky.Started, v outcome) {
	log := d.log.With("job_id", s.Job.ID, "operation", s.Job.Operation, "attempt", s.Attempt,
		"outcome", v.word, "took", v.Took)
	switch {
	case v.word == wordThrottled:
		log.Warn("the backend asked for rest; the job waits on", "detail", v.Failure.Detail,
			"retry_after", v.Gate)
	case v.To == jobs.Delayed:
		log.Warn("attempt failed; another follows", "detail", v.Failure.Detail, "in", v.Delay)
	case v.To == jobs.Failed:
		log.Warn("job failed", "detail", v.Failure.Detail)
	case v.To == jobs.Waiting:
		log.Info("job given back to the line")
	default:
		log.Info("job "+string(v.To), "waited", s.Waited, "size", v.Result.Size)
	}
}

// reportFeedback reports how this attempt has changed the treatment of the backend. Each change is
// reported once over all workers: in the process that made the attempt.
func (d *drain) reportFeedback(v outcome, f leaky.Feedback) {
	if len(f.Changes) == 0 {
		return
	}
	for _, change := range f.Changes {
		d.metrics.feedback.WithLabelValues(d.name, string(change)).Inc()
		if d.changed != nil {
			d.changed(d.name, change, v.Sign, f)
		}
	}
	log := d.log.With("changes", f.Changes, "factor", f.Factor, "gate", f.Gate)
	if v.Sign == leaky.Answered {
		log.Info("the backend recovers")
	} else {
		log.Warn("the backend is in trouble: it is called less", "cause", v.Sign)
	}
}

// repeat calls ask until it succeeds, for at most the given time (or until stop is closed), and
// returns the last error. bytes is the size of the call's payload.
func (d *drain) repeat(
	most time.Duration, bytes int, stop <-chan struct{}, ask func(context.Context) error,
) error {
	end := time.Now().Add(most)
	for pause := firstRest; ; pause = min(2*pause, longestRest) {
		ctx, cancel := context.WithTimeout(context.Background(), callTime+transfer.Time(bytes))
		err := ask(ctx)
		cancel()
		if err == nil || time.Now().Add(pause).After(end) {
			return err
		}
		select {
		case <-stop:
			return err
		case <-time.After(pause):
		}
	}
}
