package leaky

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Status is one backend's drain and line at one moment.
type Status struct {
	Now        time.Time // on Redis's clock
	Settings             // in force
	Configured Settings  // in this process's config
	Override   Override  // live overrides; nil fields are as configured
	By         string    // by of the last Tune or ResetTuning; "": none
	At         time.Time // of the last Tune or ResetTuning

	// What feedback leaves of rate and concurrency: everything while it is off or the backend is
	// healthy.
	Factor float64 // 1: all; at least 0.05
	// The last trouble: Throttled, Timeout or Unreachable; NoSign while Factor is 1.
	Cause Sign
	// A call probes whether the backend has recovered; no other starts.
	Probing              bool
	EffectiveRate        float64   // slots per second; +Inf for unlimited
	EffectiveConcurrency int       // below Concurrency only if the rate is unlimited
	GateUntil            time.Time // the backend asked for rest until then; zero: the gate is open

	Waiting    int64         // jobs in the line
	Delayed    int64         // jobs in backoff
	InFlight   int64         // jobs released or running
	OldestWait time.Duration // since the next job was accepted
	WaitingOn  string        // what the next job waits on
	CallTime   time.Duration // smoothed length of a call; 0: not known
	Recent     Calls
	Books      Books
}

// Calls has statistics of the calls that ended in the last one to two minutes.
type Calls struct {
	Ended         int64
	PerSecond     float64
	P50, P95, P99 time.Duration // of the lengths, at most 41 % too high; 0: none ended
}

// Books counts the jobs of one backend since its keys exist. At any moment Accepted = Waiting +
// Delayed + InFlight + Succeeded + Failed + Canceled + Expired + Lost.
type Books struct {
	Accepted, Succeeded, Failed, Canceled, Expired int64
	// Jobs whose keys were missing in Redis (Reconcile).
	Lost     int64
	Redriven int64 // redrives of failed jobs
	Started  int64 // calls begun
	// Calls that the backend answered with 429 or 503.
	Throttled int64
}

// Difference is Books.Accepted less the jobs in any state; 0: the books balance.
func (s Status) Difference() int64 {
	return s.Books.difference(s.Waiting + s.Delayed + s.InFlight)
}

// difference is Accepted less the jobs that are there and those that have ended.
func (b Books) difference(there int64) int64 {
	return b.Accepted - (there + b.Succeeded + b.Failed + b.Canceled + b.Expired + b.Lost)
}

// Tune sets live overrides, for all workers at once: their next release reads them. They stay in
// Redis until ResetTuning. by names the operator, for Status. A number is at least 1, and within the
// bounds of its setting.
func (l *Line) Tune(ctx context.Context, o Override, by string) error {
	args, err := o.arguments()
	if err != nil {
		return fmt.Errorf("tune %s: %w", l.settings.Backend, err)
	}
	_, err = l.run(ctx, tuneScript, append([]any{by}, args...)...)
	return err
}

// ResetTuning clears all overrides, including a pause and a switch of feedback. The configured
// settings are in force again.
func (l *Line) ResetTuning(ctx context.Context, by string) error {
	args := []any{by, "interval", ""}
	for _, name := range Tunables() {
		args = append(args, name, "")
	}
	_, err := l.run(ctx, tuneScript, args...)
	return err
}

// Status reads one backend's line and drain at one moment.
func (l *Line) Status(ctx context.Context) (Status, error) {
	a, err := l.run(ctx, statusScript, statusArguments()...)
	if err != nil {
		return Status{}, err
	}
	return l.readStatus(&a)
}

// statusArguments are those of the status script.
func statusArguments() (names []any) {
	for _, name := range Tunables() {
		names = append(names, name)
	}
	return names
}

// readStatus reads the values of the status script.
func (l *Line) readStatus(a *answer) (Status, error) {
	s := Status{Configured: l.settings}
	now := a.number()
	s.Now = time.UnixMicro(now)
	s.Waiting, s.Delayed, s.InFlight = a.number(), a.number(), a.number()
	if accepted := a.number(); accepted != 0 {
		// The clock may have been set back.
		s.OldestWait = time.Duration(max(now-accepted, 0)) * time.Microsecond
	}
	if gate := a.number(); gate > now {
		s.GateUntil = time.UnixMicro(gate)
	}
	s.WaitingOn, s.CallTime = a.text(), a.micros()
	if err := s.readOverride(a.list()); err != nil {
		return Status{}, err
	}
	if err := s.Books.read(a.list()); err != nil {
		return Status{}, err
	}
	left := a.list()
	s.Factor, s.Cause, s.Probing = left.real(), Sign(left.text()), left.text() == "1"
	// An interval of 0 gives +Inf: unlimited.
	s.EffectiveRate, s.EffectiveConcurrency = 1e6/left.real(), int(left.number())
	recent := a.list()
	s.Recent = readCalls(recent)
	return s, firstError(left.err, recent.err, a.err)
}

// readCalls reads the counts of the settle script: bucket n has calls of up to 2^(n/2) ms.
func readCalls(a *answer) (c Calls) {
	span, counts := a.micros(), map[int64]int64{}
	for len(a.values) > 0 && a.err == nil {
		bucket, n := a.number(), a.number()
		counts[bucket] += n
		c.Ended += n
	}
	if c.Ended == 0 {
		return c
	}
	c.PerSecond = float64(c.Ended) / max(span.Seconds(), 1)
	buckets, before := slices.Sorted(maps.Keys(counts)), int64(0)
	for _, b := range buckets {
		before += counts[b]
		longest := time.Duration(math.Exp2(float64(b)/2) * float64(time.Millisecond))
		quantiles := map[float64]*time.Duration{0.5: &c.P50, 0.95: &c.P95, 0.99: &c.P99}
		for part, quantile := range quantiles {
			if *quantile == 0 && float64(before) >= part*float64(c.Ended) {
				*quantile = longest
			}
		}
	}
	return c
}

func (s *Status) readOverride(a *answer) error {
	s.By, s.At = a.text(), a.when()
	for _, t := range tunables {
		if text := a.text(); text != "" {
			if err := t.read(&s.Override, text); err != nil {
				return fmt.Errorf("override of %s: %s %q %w", s.Configured.Backend, t.name, text, err)
			}
		}
	}
	s.Settings = s.Override.Apply(s.Configured)
	return a.err
}

func (b *Books) read(a *answer) error {
	fields := map[string]*int64{
		"accepted": &b.Accepted, "succeeded": &b.Succeeded, "failed": &b.Failed,
		"canceled": &b.Canceled, "expired": &b.Expired, "lost": &b.Lost,
		"started": &b.Started, "throttled": &b.Throttled, "redriven": &b.Redriven,
	}
	for len(a.values) > 0 && a.err == nil {
		field, n := a.text(), a.number()
		if to, known := fields[field]; known {
			*to = n
		}
	}
	return a.err
}

// EffectiveText is the part of the rate in force that feedback leaves, in the unit of that rate.
func (s Status) EffectiveText() string {
	_, unit, hasUnit := strings.Cut(s.Rate.String(), "/")
	if s.Factor == 1 || !hasUnit {
		return s.Rate.String()
	}
	const digits = 4
	per := rateUnits[unit] / 1e6 // seconds
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(s.EffectiveRate*per, 'g', digits, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64) + "/" + unit
}
