package leaky

import (
	"context"
	"math"
	"time"
)

// Arrivals are the jobs that entered a line lately. Requests that the line refused are not among
// them.
type Arrivals struct {
	PerSecond float64
	Spread    float64       // standard deviation of PerSecond over parts of 5 s
	Over      time.Duration // how long they were counted; 0: they aren't known yet
}

// Due is a job that waits, and when it may no longer start.
type Due struct {
	Rank int64     // jobs before it
	At   time.Time // Redis's clock
}

// Dues are the deadlines of a line's jobs, by rank: those of all Waiting jobs, or of some that are
// spread evenly over the line.
type Dues struct {
	Now     time.Time // Redis's clock
	Waiting int64
	Jobs    []Due
}

// Dues reads the deadlines of at most MaxWork jobs of the line, in one script call of under 1 ms.
func (l *Line) Dues(ctx context.Context) (Dues, error) {
	a, err := l.run(ctx, dueScript, MaxWork)
	if err != nil {
		return Dues{}, err
	}
	d := Dues{Now: a.when(), Waiting: a.number()}
	found := a.list()
	for len(found.values) > 0 && found.err == nil {
		d.Jobs = append(d.Jobs, Due{Rank: found.number(), At: found.when()})
	}
	return d, firstError(a.err, found.err)
}

// Bounds of a drain, beside OnPaused, OnQueuePaused, OnConcurrency and OnRate: what keeps it from
// being faster.
const (
	OnGate     = "gate"     // the backend's gate is closed, or a probe is under way
	OnFeedback = "feedback" // trouble has lowered the rate
)

// Outlook is what a line is going to do if jobs go on arriving as they did, and feedback leaves of
// the rate what it leaves now.
type Outlook struct {
	Rate        Rate // in force, before feedback
	Concurrency int
	Paused      bool
	BoundBy     string // OnPaused, OnQueuePaused, OnGate, OnConcurrency, OnFeedback or OnRate
	// PerSecond is how many jobs start a second at most, once the gate is open; 0: paused; +Inf:
	// nothing known bounds it.
	PerSecond float64
	// Needed is the concurrency that the rate needs; 0: BoundBy isn't OnConcurrency.
	Needed int

	EmptyIn *time.Duration // until nothing waits; nil: never, or it isn't known
	FullIn  *time.Duration // until the line refuses jobs; nil: never, or it isn't known
	FullBy  Outcome        // the refusal then: LineFull or WaitTooLong; "": FullIn is nil
	// RefusedPerMinute is how many jobs are refused once the line is full; nil: it isn't known.
	RefusedPerMinute *float64
	Wait             *time.Duration // of a job behind all that wait; nil: paused
	// Expiring is how many jobs that wait have a deadline before their start. While the drain is
	// paused no start is known, and it is how many have one within the next hour.
	Expiring int64
	// Sampled means that Expiring was estimated from some of the jobs.
	Sampled bool
}

// pausedHorizon is how far Outlook.Expiring looks ahead while the drain is paused.
const pausedHorizon = time.Hour

// Forecast returns the outlook of a line with a proposal in force; an empty one: as it is. It is
// the arithmetic of the scripts' predictions, so a wait is the one that a job would be told, within
// one slot. It assumes that a retry is as rare as it was, and that jobs that expire use no slot.
func Forecast(s Status, proposal Override, in Arrivals, due Dues) Outlook {
	p := paceOf(s, proposal, due.Now)
	o := Outlook{Rate: p.set.Rate, Concurrency: p.set.Concurrency, Paused: p.stopped,
		BoundBy: p.boundBy, PerSecond: p.perSecond(), Sampled: int64(len(due.Jobs)) < due.Waiting}
	if o.BoundBy == OnConcurrency && p.interval > 0 {
		o.Needed = int(math.Ceil(float64(p.call) / float64(p.interval)))
	}
	if !p.stopped {
		o.Wait = new(p.wait(s.Waiting))
	}
	o.Expiring = p.expiring(due)
	if in.Over == 0 {
		return o
	}
	o.EmptyIn = p.emptyIn(s, in.PerSecond)
	limit, by := p.room(s)
	if o.FullIn = p.fullIn(s, in.PerSecond, limit); o.FullIn != nil {
		o.FullBy = by
	}
	o.RefusedPerMinute = new(0.0)
	if o.FullIn != nil {
		*o.RefusedPerMinute = 60 * max(in.PerSecond-o.PerSecond, 0)
	}
	return o
}

// pace is how fast a line starts jobs: wait_for of the scripts' prelude, without the part of an
// interval until the next slot.
type pace struct {
	set      Settings // in force
	stopped  bool
	open     time.Duration // until the gate opens
	interval time.Duration // between slots; 0: unlimited
	place    time.Duration // that a job has the concurrency for itself
	full     bool          // all places are taken
	call     time.Duration
	boundBy  string
}

// paceOf returns the pace of a line with a proposal in force.
func paceOf(s Status, proposal Override, now time.Time) pace {
	set := proposal.Apply(s.Settings)
	queuePaused := s.WaitingOn == OnQueuePaused
	p := pace{set: set, stopped: set.Paused || queuePaused, call: s.CallTime}
	concurrency, factor := set.Concurrency, 1.0
	if set.Feedback {
		factor = s.Factor
		p.open = max(s.GateUntil.Sub(now), 0)
	}
	if set.Rate.Interval() == 0 {
		concurrency = max(1, int(math.Floor(float64(concurrency)*factor)))
	}
	p.interval = fromMicros(set.Rate.Interval() / factor)
	p.place = s.CallTime / time.Duration(max(concurrency, 1))
	p.full = s.InFlight >= int64(concurrency)
	switch {
	case set.Paused:
		p.boundBy = OnPaused
	case queuePaused:
		p.boundBy = OnQueuePaused
	case bool(set.Feedback) && (p.open > 0 || s.Probing):
		p.boundBy = OnGate
	case p.place > p.interval || p.interval == 0 && factor == 1:
		p.boundBy = OnConcurrency
	case factor < 1:
		p.boundBy = OnFeedback
	default:
		p.boundBy = OnRate
	}
	return p
}

func fromMicros(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// wait predicts the time until a job with rank jobs before it starts.
func (p pace) wait(rank int64) time.Duration {
	places := rank
	if p.full {
		places++
	}
	return p.open + time.Duration(max(float64(rank)*float64(p.interval),
		float64(places)*float64(p.place)))
}

// perSecond is how many jobs start a second once the gate is open.
func (p pace) perSecond() float64 {
	if p.stopped {
		return 0
	}
	return 1 / max(p.interval, p.place).Seconds() // +Inf: neither is known
}

// room returns how many jobs may wait, and the refusal of the next one. While the drain is paused
// no wait is too long.
func (p pace) room(s Status) (float64, Outcome) {
	room := float64(int64(p.set.Capacity) - s.Delayed)
	if soon := p.perSecond() * p.set.MaxWait.Seconds(); !p.stopped && soon < room {
		return soon, WaitTooLong
	}
	return room, LineFull
}

// emptyIn is the time until no job waits, those in backoff included; nil: never.
func (p pace) emptyIn(s Status, arrivals float64) *time.Duration {
	backlog := float64(s.Waiting + s.Delayed)
	out := p.perSecond()
	if backlog == 0 && out > arrivals {
		return new(time.Duration(0))
	}
	if out <= arrivals {
		return nil
	}
	return later(p.open.Seconds() + (backlog+arrivals*p.open.Seconds())/(out-arrivals))
}

// fullIn is the time until a line with that room is full; nil: never.
func (p pace) fullIn(s Status, arrivals, room float64) *time.Duration {
	left, gate := room-float64(s.Waiting), p.open.Seconds()
	out := p.perSecond()
	switch {
	case left <= 0:
		return new(time.Duration(0))
	case left <= arrivals*gate:
		return later(left / arrivals)
	case arrivals <= out:
		return nil
	}
	return later(gate + (left-arrivals*gate)/(arrivals-out))
}

// later is a time from now in seconds; nil if it is further away than a duration can be.
func later(seconds float64) *time.Duration {
	const century = 100 * 365 * 24 * 3600
	if math.IsNaN(seconds) || seconds > century {
		return nil
	}
	return new(time.Duration(seconds * float64(time.Second)))
}

// expiring counts the jobs whose deadline comes before their start, of all that wait.
func (p pace) expiring(due Dues) int64 {
	if len(due.Jobs) == 0 {
		return 0
	}
	each, expired := float64(due.Waiting)/float64(len(due.Jobs)), 0.0
	for _, d := range due.Jobs {
		left := d.At.Sub(due.Now)
		starts := pausedHorizon
		if !p.stopped {
			starts = p.wait(d.Rank - int64(expired))
		}
		if left < starts {
			expired += each
		}
	}
	return int64(math.Round(expired))
}
