package leaky

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Status is one backend's drain and line at one moment.
type Status struct {
	Now        time.Time       // on Redis's clock
	Settings                   // in force
	Configured Settings        // in this process's config
	Override   Override        // live overrides; nil fields are as configured
	Notes      map[string]Note // on each live override, by its name
	By, Reason string          // of the last Tuning; "": none
	At         time.Time       // of the last Tuning
	// Version is another after each Tuning, and when an override ends by itself.
	Version string

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

// Note says who set an override, when and why, and when it ends. An override of the version before
// has the zero Note.
type Note struct {
	By, Reason string
	At         time.Time
	Ends       time.Time // zero: it stays until it is changed
}

// Tuning is an operator's change of live overrides. A field that isn't set keeps its override, with
// its end and its note.
type Tuning struct {
	Set    Override // numbers are at least 1, and within the bounds of their settings
	Reset  bool     // take all overrides back instead, a pause and a switch of feedback included
	By     string   // names the operator, for Status
	Reason string   // one line of at most MaxReason characters; "": none is given
	// For is how long the overrides in Set last: MinFor to MaxFor, or 0, until they are changed.
	For time.Duration
	If  string // the Status.Version that the change is meant for; "": any
}

// Bounds of a Tuning.
const (
	// MinFor and MaxFor bound Tuning.For. A shorter override would be over before its effect could
	// be seen. A longer one is a setting, and belongs into the config.
	MinFor = time.Second
	MaxFor = 30 * 24 * time.Hour
	// MaxReason bounds Tuning.Reason, in characters: a line of a log.
	MaxReason = 200
)

// ErrChanged means that the settings are no longer those that a Tuning is meant for.
var ErrChanged = errors.New("the settings have been changed meanwhile")

// Retune changes live overrides, for all workers at once: their next release reads them. They stay
// in Redis until they are changed again, or until their end, on Redis's clock. From that moment on
// every step of the line counts them as none, whether or not a process lives then, and the line
// goes on as after an operator's reset. Of two changes that are meant for one version, one returns
// ErrChanged. A change with If that is repeated after an error returns ErrChanged if it was carried
// out before.
func (l *Line) Retune(ctx context.Context, c Tuning) error {
	fields, err := c.Set.arguments()
	switch {
	case err != nil:
	case c.For != 0 && (c.For < MinFor || c.For > MaxFor):
		err = fmt.Errorf("an override lasts from %v to %v, not %v", MinFor, MaxFor, c.For)
	case utf8.RuneCountInString(c.Reason) > MaxReason || strings.ContainsAny(c.By+c.Reason, "\n"):
		err = fmt.Errorf("a reason is a line of at most %d characters", MaxReason)
	}
	if err != nil {
		return fmt.Errorf("tune %s: %w", l.settings.Backend, err)
	}
	if c.Reset {
		fields = []any{"interval", ""}
		for _, name := range Tunables() {
			fields = append(fields, name, "")
		}
	}
	lasts := any("")
	if c.For != 0 {
		lasts = micros(c.For)
	}
	a, err := l.run(ctx, tuneScript, append([]any{c.By, c.Reason, lasts, c.If}, fields...)...)
	if err == nil && a.text() == "changed" {
		err = ErrChanged
	}
	return err
}

// Tune is Retune for overrides that stay, whatever the settings are now.
func (l *Line) Tune(ctx context.Context, o Override, by string) error {
	return l.Retune(ctx, Tuning{Set: o, By: by})
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
	s.By, s.At, s.Reason = a.text(), a.when(), a.text()
	revision := a.number()
	s.Notes = map[string]Note{}
	for _, t := range tunables {
		text, note := a.text(), readNote(a.text())
		if text == "" {
			continue
		}
		if err := t.read(&s.Override, text); err != nil {
			return fmt.Errorf("override of %s: %s %q %w", s.Configured.Backend, t.name, text, err)
		}
		s.Notes[t.name] = note
	}
	for _, t := range tunables {
		end := a.when()
		if note, live := s.Notes[t.name]; live {
			note.Ends = end
			s.Notes[t.name] = note
		}
	}
	at := int64(0)
	if !s.At.IsZero() {
		at = s.At.UnixMicro()
	}
	s.Version = fmt.Sprintf("%d.%d.%d", revision, at, len(s.Notes)) // as in tune.lua
	s.Settings = s.Override.Apply(s.Configured)
	return a.err
}

// readNote reads what tune.lua has kept, if anything.
func readNote(text string) (n Note) {
	parts := strings.SplitN(text, "\n", 3)
	if at, err := strconv.ParseInt(parts[0], 10, 64); err == nil && len(parts) == 3 {
		n.At, n.By, n.Reason = time.UnixMicro(at), parts[1], parts[2]
	}
	return n
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
