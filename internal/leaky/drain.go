package leaky

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// How the drain is paced. A horizon of 50 ms covers a round trip, asynq's dequeue and a late timer,
// and keeps the rate within 0.1 % over three processes (docs/bench.md). A longer one would only
// delay the effect of a lowered rate.
const (
	horizon  = 50 * time.Millisecond
	maxGrant = 64                    // jobs per release
	maxRenew = 256                   // leases per renewal
	grace    = 2 * time.Second       // from a granted slot to the job's return if it hasn't started
	late     = 10 * time.Millisecond // a start later than this has missed its slot
)

// Lease is how long a worker's claim on a running job lasts unless it is renewed. RenewEvery leaves
// room for two failed renewals.
const (
	Lease      = 10 * time.Second
	RenewEvery = 3 * time.Second
)

// StartAhead is how long before its due time a worker should call Start: enough for a round trip.
const StartAhead = 5 * time.Millisecond

// Release grants the slots of the next 50 ms, at most 64. Before that it returns jobs with expired
// leases to the head of the line and jobs with ended backoffs to the line, ends jobs past their
// deadline, and removes overrides that have ended. The caller must deliver the tickets. Jobs whose
// tickets never arrive return to the line 2 s after they were due.
func (l *Line) Release(ctx context.Context) (Release, error) {
	a, err := l.run(ctx, releaseScript, maxGrant, micros(horizon), micros(grace), micros(Lease),
		l.settings.Attempts)
	if err != nil {
		return Release{}, err
	}
	r := Release{Now: a.number(), Wait: a.micros(), Reason: a.text(), Returned: int(a.number())}
	granted, ended, lapsed := a.list(), a.list(), a.list()
	for len(granted.values) > 0 && granted.err == nil {
		r.Tickets = append(r.Tickets,
			Ticket{ID: granted.text(), Run: granted.number(), Due: granted.number()})
	}
	for len(ended.values) > 0 && ended.err == nil {
		r.Ended = append(r.Ended,
			Ended{ID: ended.text(), State: jobs.State(ended.text()), Code: ended.text()})
	}
	for len(lapsed.values) > 0 && lapsed.err == nil {
		// A field of a newer version, or one that can't be read, is removed all the same.
		_ = r.Lapsed.set(lapsed.text(), lapsed.text())
	}
	return r, firstError(a.err, granted.err, ended.err, lapsed.err)
}

// QueuePaused records whether the queue that carries this line's tickets is paused. While it is,
// until 5 s after the last report, nothing is granted, because tickets would pile up in the queue.
// It is idempotent.
func (l *Line) QueuePaused(ctx context.Context, paused bool) error {
	_, err := l.run(ctx, stopScript, flag(paused))
	return err
}

// Start claims the ticket's job for owner, a nonce of the worker. It is idempotent for half a
// lease: the same owner may repeat it after an error.
func (l *Line) Start(ctx context.Context, t Ticket, owner string) (Started, error) {
	a, err := l.run(ctx, startScript, t.ID, t.Run, owner, micros(Lease), micros(late),
		micros(horizon))
	if err != nil {
		return Started{}, err
	}
	s := Started{Outcome: StartOutcome(a.text()), Now: a.number()}
	if s.Outcome != Go {
		return s, a.err
	}
	s.Due, s.Attempt = a.number(), int(a.number())
	job, times, err := jobs.DecodeRecord(t.ID, []byte(a.text()))
	if err != nil {
		return Started{}, fmt.Errorf("job %s: %w", t.ID, err)
	}
	s.Job = job
	// The clock may have been set back.
	s.Waited = max(time.Duration(s.Due-times.Accepted.UnixMicro())*time.Microsecond, 0)
	s.Ends = times.EndBy.UnixMicro()
	return s, a.err
}

// Renew extends owner's leases on the jobs of the tickets, and returns for each whether it still
// holds. After an error some may have been extended. It is idempotent.
func (l *Line) Renew(ctx context.Context, owner string, tickets []Ticket) ([]Renewal, error) {
	out := make([]Renewal, 0, len(tickets))
	for part := range slices.Chunk(tickets, maxRenew) {
		args := make([]any, 0, 2+2*len(part))
		args = append(args, owner, micros(Lease))
		for _, t := range part {
			args = append(args, t.ID, t.Run)
		}
		a, err := l.run(ctx, renewScript, args...)
		if err != nil {
			return nil, err
		}
		a.number() // now
		for range part {
			out = append(out, Renewal(a.text()))
		}
		if a.err != nil {
			return nil, a.err
		}
	}
	return out, nil
}

// Bounds of one call of the part script, so that it doesn't hold Redis for long.
const (
	partBytes = 1 << 20 // of payloads that are written again; the first one may be larger
	partMost  = 256     // subscriptions
)

// PartOutcome is the outcome of Part.
type PartOutcome string

// Outcomes of Part.
const (
	Parted        PartOutcome = "parted"    // the job's answer is for one caller now
	MoreToPart    PartOutcome = "more"      // Part must be called again
	PartForfeited PartOutcome = "forfeited" // the lease had expired: nothing changed
)

// Part turns the subscriptions to a running job, except the first, into jobs of their own, because
// the job's answer is for one caller. It must be called before Settle, until it returns Parted. The
// new jobs keep ids, metadata, webhooks and permits. They stand at the ends of their clients' flows
// and are counted as accepted. With private, further subscriptions of the first one's client stay,
// unless that client is anonymous. It is idempotent.
func (l *Line) Part(
	ctx context.Context, t Ticket, owner string, private bool,
) (PartOutcome, error) {
	a, err := l.run(ctx, partScript, t.ID, t.Run, owner, flag(private), partBytes, partMost)
	if err != nil {
		return "", err
	}
	return PartOutcome(a.text()), a.err
}

// Settle stores the outcome of an attempt and ends its lease, in one step. It is idempotent: the
// same owner may settle the same ticket again after an error. Forfeited: the lease had expired, and
// nothing was stored.
func (l *Line) Settle(ctx context.Context, s Settlement) (SettleOutcome, Feedback, error) {
	switch s.To {
	case jobs.Succeeded, jobs.Failed, jobs.Canceled, jobs.Expired, jobs.Delayed, jobs.Waiting:
	default:
		return "", Feedback{}, fmt.Errorf("line of %s: job %s can't settle to %q",
			l.settings.Backend, s.ID, s.To)
	}
	status := any("")
	if s.Result.Status != 0 {
		status = s.Result.Status
	}
	a, err := l.run(ctx, settleScript, s.ID, s.Run, s.Owner, string(s.To), micros(s.Delay),
		string(s.Sign), micros(s.Gate), s.Failure.Code, s.Failure.Detail, status,
		s.Result.ContentType, s.Body, micros(s.Took), string(s.Result.Fields))
	if err != nil {
		return "", Feedback{}, err
	}
	outcome := SettleOutcome(a.text())
	f := Feedback{Factor: a.real(), Gate: a.micros()}
	for len(a.values) > 0 && a.err == nil {
		f.Changes = append(f.Changes, Change(a.text()))
	}
	return outcome, f, a.err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
