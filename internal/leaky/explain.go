package leaky

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// Explanation is one job, what is ahead of it, and the drain of its backend, at one moment.
type Explanation struct {
	Look
	Status Status
	// LoweredAt is when trouble last lowered the factor; zero: the factor is 1.
	LoweredAt time.Time
	Ahead     []Ahead // the clients with the most jobs ahead, at most 8, the largest first
	// OtherClients have OtherJobs ahead.
	OtherClients, OtherJobs int64
	// Sampled means that the numbers by client are estimates, from 100 of the jobs ahead.
	Sampled bool
	// HighPosition is the position that a job of the same client with high priority would get now;
	// 0: this one doesn't wait in the line, or has it.
	HighPosition int64
}

// Ahead is one client's part of the jobs ahead of a job.
type Ahead struct {
	Client string
	Jobs   int64
}

// Explain returns a job's explanation. It takes one script call of at most about 1 ms, however long
// the line is. It returns ErrUnknownJob if there is no such job on record, as a *GoneError if there
// was one.
func (l *Line) Explain(ctx context.Context, id string) (Explanation, error) {
	args := append(statusArguments(), id)
	a, err := l.run(ctx, explainScript, args...)
	if err != nil {
		return Explanation{}, err
	}
	var e Explanation
	if e.Status, err = l.readStatus(a.list()); err != nil {
		return Explanation{}, err
	}
	if e.Look, err = readLook(id, a.list(), e.Status.WaitingOn); err != nil {
		return Explanation{}, err
	}
	e.Now, e.CallTime, e.LoweredAt = e.Status.Now, e.Status.CallTime, a.when()
	if e.Position == 0 {
		return e, a.err
	}
	return e, firstError(e.readAhead(&a), a.err)
}

// readAhead reads the clients that are ahead.
func (e *Explanation) readAhead(a *answer) error {
	looked, clients, ahead := a.number(), a.number(), e.Position-1
	if rank := a.number(); rank >= 0 {
		e.HighPosition = rank + 1
	}
	e.Sampled, e.OtherClients, e.OtherJobs = looked < ahead, clients, ahead
	for len(a.values) > 0 && a.err == nil {
		row := a.list()
		n, id, record := row.number(), row.text(), row.text()
		job, _, err := jobs.DecodeRecord(id, []byte(record))
		if err = firstError(row.err, err); err != nil {
			return fmt.Errorf("job %s: %w", id, err)
		}
		part := n
		if e.Sampled {
			part = int64(math.Round(float64(n) / float64(looked) * float64(ahead)))
		}
		part = min(part, e.OtherJobs)
		e.Ahead = append(e.Ahead, Ahead{Client: job.Client, Jobs: part})
		e.OtherClients, e.OtherJobs = e.OtherClients-1, e.OtherJobs-part
	}
	return nil
}

// Values of Remedy.Change.
const (
	ToRate        = "rate"
	ToConcurrency = "concurrency"
	ToResume      = "resume"
	ToHealth      = "health" // the backend is well again, and the whole rate in force
	ToPriority    = "priority"
)

// Remedy is a change with which a waiting job would start sooner.
type Remedy struct {
	Change string
	Value  string        // of the setting; "" for ToResume and ToHealth
	Wait   time.Duration // then
}

// Remedies returns the changes with which the job would start sooner, each by itself; none for a
// job that isn't in the line. A rate is at most what the concurrency allows.
func (e Explanation) Remedies() (all []Remedy) {
	if e.Position == 0 {
		return nil
	}
	now := paceOf(e.Status, Override{}, e.Now)
	wait := now.wait(e.Position - 1)
	add := func(change, value string, o Override, s Status, position int64) {
		p := paceOf(s, o, e.Now)
		if in := p.wait(position - 1); !p.stopped && (now.stopped || in < wait) {
			all = append(all, Remedy{Change: change, Value: value, Wait: in})
		}
	}
	if now.stopped {
		add(ToResume, "", Override{Paused: new(false)}, e.Status, e.Position)
		return all
	}
	if e.Status.Factor < 1 || now.open > 0 || e.Status.Probing {
		well := e.Status
		well.Factor, well.GateUntil, well.Probing = 1, time.Time{}, false
		add(ToHealth, "", Override{}, well, e.Position)
	} else if now.boundBy == OnConcurrency && now.interval > 0 {
		needed := int(math.Ceil(float64(now.call) / float64(now.interval)))
		add(ToConcurrency, strconv.Itoa(needed), Override{Concurrency: &needed}, e.Status,
			e.Position)
	} else if now.boundBy == OnRate {
		if faster, err := ParseRate(now.faster()); err == nil {
			add(ToRate, faster.String(), Override{Rate: &faster}, e.Status, e.Position)
		}
	}
	if e.HighPosition > 0 {
		add(ToPriority, string(jobs.High), Override{}, e.Status, e.HighPosition)
	}
	return all
}

// faster is twice the rate, but no more than the concurrency allows, as a text with three digits.
func (p pace) faster() string {
	perSecond := 2 / p.interval.Seconds()
	if p.place > 0 {
		perSecond = min(perSecond, 1/p.place.Seconds())
	}
	const digits = 3
	return trimmed(perSecond, digits) + "/s"
}

// trimmed writes a number with that many significant digits, rounded down, without an exponent.
func trimmed(x float64, digits int) string {
	scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(x)))
	return strconv.FormatFloat(math.Floor(x*scale)/scale, 'f', -1, 64)
}
