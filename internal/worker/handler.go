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
	// startTime is how long a released job waits for its start; after that the line gives it to somebody else.
	startTime = 2 * time.Second
	// longestSleep caps a sleep until a due time, which lies at most 50 ms ahead by the line's clock.
	longestSleep = time.Second
	// settleTime is how long a settlement is repeated. The lease may have ended by then, but as long as Redis is away
	// nobody can take the job back, and until somebody has, a late settlement stands.
	settleTime = 30 * time.Second
	// storeTime bounds the keeping of an answer, which its job's end waits for. It is well within a lease.
	storeTime = 2 * time.Second
)

// handle makes one attempt at the ticket's job. The queue calls it, each time in a goroutine of its own.
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
	if v.Sign != leaky.Throttled { // a refusal says nothing of how long calls take
		v.Took = took
	}
	if started.Job.Shared && v.Result.Storing != "" && !d.part(started, &v) {
		return
	}
	d.learn(started, v) // before it is settled: who sees that the job is done finds its answer stored, or the older one gone
	d.settle(started, v)
}

// start takes the job shortly before it is due. False: it isn't ours to run, or this worker stops.
func (d *drain) start(one *run) (leaky.Started, bool) {
	select {
	case <-d.runs.stopping:
		return leaky.Started{}, false
	case <-time.After(d.clock.Until(one.ticket.Due, longestSleep) - leaky.StartAhead):
	}
	var s leaky.Started
	first := time.Now() // where an answer is lost, the lease began with the question before
	err := d.repeat(startTime, 0, d.runs.stopping, func(ctx context.Context) (err error) {
		sent := time.Now()
		if s, err = d.line.Start(ctx, one.ticket, d.owner); err != nil {
			return err
		}
		d.clock.Observe(sent, time.Now(), s.Now)
		if s.Verdict == leaky.Go {
			d.runs.hold(one, first)
		}
		return nil
	})
	if err != nil {
		d.log.Warn("a job could not be started; it goes back to the line", "job_id", one.ticket.ID, "error", err)
		return leaky.Started{}, false
	}
	if s.Verdict != leaky.Go {
		d.log.Debug("a ticket is void", "job_id", one.ticket.ID, "verdict", s.Verdict)
		return leaky.Started{}, false
	}
	if s.Attempt == 1 {
		d.metrics.waits.WithLabelValues(d.name).Observe(s.Waited.Seconds())
	}
	return s, true
}

// attempt calls the backend when the job's slot has come.
func (d *drain) attempt(one *run, s leaky.Started) (v verdict, took time.Duration) {
	op, known := d.operations[s.Job.Operation]
	if !known {
		return failed(leaky.NoSign, jobs.CodeUnknownOperation, "The worker's configuration has no such operation for this backend."), 0
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
		return verdict{word: wordLost}, took
	}
	if err != nil {
		d.log.Debug("no answer", "job_id", s.Job.ID, "error", err)
	}
	if len(a.Left) > 0 {
		d.log.Warn("fields of the backend's answer are not kept: too long, or with control characters", "job_id", s.Job.ID, "fields", a.Left)
	}
	v = judge(a, err, s.Attempt, d.policy, rand.Float64())
	v.said = jobs.Meta{Status: a.Status, Storing: a.Storing}
	if !v.To.Final() && errors.Is(context.Cause(one.ctx), errCanceled) {
		// It came too late for this call, in time for the next. What the call says of the backend counts.
		v = verdict{word: wordCanceled, Settlement: leaky.Settlement{To: jobs.Canceled, Sign: v.Sign, Gate: v.Gate}}
	}
	return v, took
}

// part has an answer that is for one caller alone end the job for that one alone: the others' shares become jobs of their own. False: it couldn't, and
// the job runs again.
func (d *drain) part(s leaky.Started, v *verdict) bool {
	if v.To == jobs.Failed && v.said.Status >= 500 {
		v.Result, v.Body = jobs.Meta{}, nil // a backend in trouble isn't called once for each of them: all fail, and nobody sees its answer
		return true
	}
	private := v.Result.Storing == jobs.Private
	for {
		var said leaky.PartVerdict
		err := d.repeat(settleTime, 0, d.runs.leaving, func(ctx context.Context) (err error) {
			said, err = d.line.Part(ctx, v.Ticket, v.Owner, private)
			return err
		})
		switch {
		case err != nil:
			d.log.Error("a private answer could not be kept from the job's other callers; the job runs again", "job_id", s.Job.ID, "error", err)
			return false
		case said == leaky.PartForfeited:
			d.lost(s, v.Took)
			return false
		case said == leaky.Parted:
			d.log.Debug("the answer is for one caller: others' shares are jobs of their own", "job_id", s.Job.ID, "storing", v.Result.Storing)
			return true
		}
	}
}

// settle tells the line how the attempt ended.
func (d *drain) settle(s leaky.Started, v verdict) {
	var said leaky.SettleVerdict
	var feedback leaky.Feedback
	err := d.repeat(settleTime, len(v.Body), d.runs.leaving, func(ctx context.Context) (err error) {
		said, feedback, err = d.line.Settle(ctx, v.Settlement)
		return err
	})
	if err != nil {
		d.log.Error("an outcome could not be stored; the job runs again", "job_id", s.Job.ID, "attempt", s.Attempt,
			"outcome", v.word, "error", err)
		return
	}
	if said != leaky.Settled {
		d.lost(s, v.Took)
		return
	}
	d.metrics.attempt(s.Job.Operation, v.word, v.To)
	d.logOutcome(s, v)
	d.tellFeedback(v, feedback)
}

// learn has what is stored for later requests follow the backend's last word on the job. The job goes its way whether that worked or not.
func (d *drain) learn(s leaky.Started, v verdict) {
	meta := v.Result
	switch {
	case d.stale == nil || v.To != jobs.Succeeded && v.To != jobs.Failed:
		return
	case v.To == jobs.Failed && good(v.said.Status): // it was too large: its body isn't there
		return
	case v.To == jobs.Failed:
		meta = v.said // of an answer that broke off, too
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime+transfer.Time(len(v.Body)))
	defer cancel()
	if err := d.stale.Learn(ctx, s.Job, meta, v.Body); err != nil {
		d.log.Warn("what is stored for later could not follow the answer", "job_id", s.Job.ID, "error", err)
	}
}

// lost is an attempt that counts for nothing: another worker has, or will have, the job.
func (d *drain) lost(s leaky.Started, took time.Duration) {
	d.metrics.attempt(s.Job.Operation, wordLost, "")
	d.log.Warn("job lost: its lease ran out", "job_id", s.Job.ID, "operation", s.Job.Operation, "attempt", s.Attempt, "took", took)
}

func (d *drain) logOutcome(s leaky.Started, v verdict) {
	log := d.log.With("job_id", s.Job.ID, "operation", s.Job.Operation, "attempt", s.Attempt, "outcome", v.word, "took", v.Took)
	switch {
	case v.word == wordThrottled:
		log.Warn("the backend asked for rest; the job waits on", "detail", v.Failure.Detail, "retry_after", v.Gate)
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

// tellFeedback reports what this attempt has changed of how the backend is treated, once in the fleet: in the process
// whose attempt it was.
func (d *drain) tellFeedback(v verdict, f leaky.Feedback) {
	if len(f.Changes) == 0 {
		return
	}
	for _, change := range f.Changes {
		d.metrics.feedback.WithLabelValues(d.name, string(change)).Inc()
	}
	log := d.log.With("changes", f.Changes, "factor", f.Factor, "gate", f.Gate)
	if v.Sign == leaky.Answered {
		log.Info("the backend recovers")
	} else {
		log.Warn("the backend is in trouble: it is called less", "cause", v.Sign)
	}
}

// repeat asks the line until it answers, for at most the given time (or until stop is closed), and returns the last error.
// What it asks carries so many bytes.
func (d *drain) repeat(most time.Duration, bytes int, stop <-chan struct{}, ask func(context.Context) error) error {
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
