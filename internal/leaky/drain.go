package leaky

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// How the drain is paced. Measured (docs/bench.md): a horizon of 50 ms keeps the rate within 0.1 % over three
// processes, for it covers a round trip, asynq's dequeue and a late timer; a longer one would only make a lowered
// rate take effect later.
const (
	horizon  = 50 * time.Millisecond
	maxGrant = 64                    // jobs a release: what one call may hold Redis for
	maxRenew = 256                   // leases a renewal: the same, for less work a job
	grace    = 2 * time.Second       // from a granted slot to its start, before the job goes back
	late     = 10 * time.Millisecond // a start later than this has missed its slot
)

// Lease is how long a worker's claim on a running job lasts unless renewed; RenewEvery leaves room for two lost renewals.
const (
	Lease      = 10 * time.Second
	RenewEvery = 3 * time.Second
)

// StartAhead is how long before its due time a worker should call Start: a round trip, with room.
const StartAhead = 5 * time.Millisecond

// Release grants the slots of the next 50 ms, at most 64, and before that puts the line in order: lost jobs back to
// the head, ended backoffs back into the line, jobs past their deadline out of it. The tickets are the caller's to
// deliver; those that never arrive come back by themselves 2 s after they were due.
func (l *Line) Release(ctx context.Context) (Release, error) {
	a, err := l.run(ctx, releaseScript, maxGrant, micros(horizon), micros(grace), micros(Lease), l.settings.Attempts)
	if err != nil {
		return Release{}, err
	}
	r := Release{Now: a.number(), Wait: a.micros(), Reason: a.text(), Returned: int(a.number())}
	granted, ended := a.list(), a.list()
	for len(granted.values) > 0 && granted.err == nil {
		r.Tickets = append(r.Tickets, Ticket{ID: granted.text(), Run: granted.number(), Due: granted.number()})
	}
	for len(ended.values) > 0 && ended.err == nil {
		r.Ended = append(r.Ended, Ended{ID: ended.text(), State: jobs.State(ended.text()), Code: ended.text()})
	}
	return r, firstError(a.err, granted.err, ended.err)
}

// QueuePaused notes whether the queue that brings this line's tickets to the workers stands still. While it does, for 5 s from the last time
// that a worker said so, nothing is granted: tickets would pile up there. It is idempotent.
func (l *Line) QueuePaused(ctx context.Context, paused bool) error {
	_, err := l.run(ctx, stopScript, flag(paused))
	return err
}

// Start takes the ticket's job for the worker that calls itself owner (a nonce of its process). It is idempotent for half
// a lease: the same owner may ask again when an answer was lost.
func (l *Line) Start(ctx context.Context, t Ticket, owner string) (Started, error) {
	a, err := l.run(ctx, startScript, t.ID, t.Run, owner, micros(Lease), micros(late), micros(horizon))
	if err != nil {
		return Started{}, err
	}
	s := Started{Verdict: StartVerdict(a.text()), Now: a.number()}
	if s.Verdict != Go {
		return s, a.err
	}
	s.Due, s.Attempt = a.number(), int(a.number())
	job, times, err := jobs.DecodeRecord(t.ID, []byte(a.text()))
	if err != nil {
		return Started{}, fmt.Errorf("job %s: %w", t.ID, err)
	}
	s.Job = job
	s.Waited = max(time.Duration(s.Due-times.Accepted.UnixMicro())*time.Microsecond, 0) // a clock may have been set back
	s.Ends = times.EndBy.UnixMicro()
	return s, a.err
}

// Renew extends owner's leases on the jobs of the tickets, and says of each whether it still holds. Where an error is
// returned, some may have been extended; it is idempotent.
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

// Bounds of one call of the part script: what it may hold Redis for.
const (
	partBytes = 1 << 20 // of payloads that are written once more, but for one share
	partMost  = 256     // shares
)

// PartVerdict is what Part did.
type PartVerdict string

// Words of Part.
const (
	Parted        PartVerdict = "parted"    // the job's answer is for one caller now
	MoreToPart    PartVerdict = "more"      // Part must be called again
	PartForfeited PartVerdict = "forfeited" // the lease was lost before: nothing changed
)

// Part makes the shares in a running job jobs of their own, but for the first: its answer turned out to be for one caller alone. To be called
// before Settle, until it says Parted. They keep ids, words, webhooks and places, and stand at their clients' flows' ends; they are
// counted as accepted. Private: further shares of the first one's client stay too, unless it has no key. It is idempotent.
func (l *Line) Part(ctx context.Context, t Ticket, owner string, private bool) (PartVerdict, error) {
	a, err := l.run(ctx, partScript, t.ID, t.Run, owner, flag(private), partBytes, partMost)
	if err != nil {
		return "", err
	}
	return PartVerdict(a.text()), a.err
}

// Settle stores how an attempt ended and gives up its lease, in one step. It is idempotent: the same owner may settle
// the same ticket again when an answer was lost. Forfeited: the lease had been lost, and nothing was stored.
func (l *Line) Settle(ctx context.Context, s Settlement) (SettleVerdict, Feedback, error) {
	switch s.To {
	case jobs.Succeeded, jobs.Failed, jobs.Canceled, jobs.Expired, jobs.Delayed, jobs.Waiting:
	default:
		return "", Feedback{}, fmt.Errorf("line of %s: job %s can't settle to %q", l.settings.Backend, s.ID, s.To)
	}
	status := any("")
	if s.Result.Status != 0 {
		status = s.Result.Status
	}
	a, err := l.run(ctx, settleScript, s.ID, s.Run, s.Owner, string(s.To), micros(s.Delay), string(s.Sign), micros(s.Gate),
		s.Failure.Code, s.Failure.Detail, status, s.Result.ContentType, s.Body, micros(s.Took), string(s.Result.Fields))
	if err != nil {
		return "", Feedback{}, err
	}
	verdict := SettleVerdict(a.text())
	f := Feedback{Factor: a.real(), Gate: a.micros()}
	for len(a.values) > 0 && a.err == nil {
		f.Changes = append(f.Changes, Change(a.text()))
	}
	return verdict, f, a.err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
