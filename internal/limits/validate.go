package limits

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Problem is what is wrong with one field of a Limit.
type Problem struct {
	Field string // its name in a config: per, algorithm, limit, window, burst or cost.bytes
	Value any    // of the field
	text  string // with {value} and {limit}
}

// Text returns the problem and its correction, with the given texts for the value and the limit.
func (p Problem) Text(value, limit string) string {
	return strings.NewReplacer("{value}", value, "{limit}", limit).Replace(p.text)
}

func (p Problem) Error() string { return p.Field + " " + p.Text(fmt.Sprint(p.Value), "this limit") }

// Problems returns all that is wrong with single fields of l. If there are none, its numbers
// together may still be impossible to count exactly: see Validate.
func (l Limit) Problems() []Problem {
	var all []Problem
	found := func(field string, value any, format string, args ...any) {
		all = append(all, Problem{field, value, fmt.Sprintf(format, args...)})
	}
	if err := noneOf(l.Per, everyPer); err != nil {
		found("per", l.Per, "{value} %v", err)
	}
	known := noneOf(l.Algorithm, everyAlgorithm)
	switch {
	case l.Algorithm == "":
		found("algorithm", l.Algorithm, "is required: one of %s", list(everyAlgorithm))
	case known != nil:
		found("algorithm", l.Algorithm, "{value} %v", known)
	}
	switch {
	case l.Amount < 1 || l.Amount > MaxAmount:
		found("limit", l.Amount, "{value} is out of bounds for {limit}; write 1 to %d (to allow "+
			"nothing, take the operation from the tier)", MaxAmount)
	case l.Algorithm == SlidingWindowLog && l.Amount > MaxLog:
		found("limit", l.Amount, "{value} is too much for {limit}: a %s remembers each request; "+
			"write 1 to %d, or use %s",
			SlidingWindowLog, MaxLog, SlidingWindowCounter)
	}
	switch day := 24 * time.Hour; {
	case l.Algorithm == Concurrency:
		if l.Window != 0 {
			found("window", l.Window, "has no meaning for {limit}: %s counts the jobs that wait "+
				"and run now; leave it out", Concurrency)
		}
	case l.Window == Month:
		if known == nil && l.Algorithm != FixedWindow {
			found("window", "month", "{value} is of the calendar, and the algorithm of {limit} is "+
				"%s; write a duration such as 24h, or use %s", l.Algorithm, FixedWindow)
		}
	case l.Window < MinWindow || l.Window > MaxWindow:
		found("window", l.Window, "{value} is out of bounds for {limit}; write %v to "+
			"%dd", MinWindow, MaxWindow/day)
	}
	switch {
	case l.Burst != 0 && known == nil && !l.Algorithm.HasBurst():
		found("burst", l.Burst, "has no meaning for {limit}, whose algorithm is %s; leave it out, "+
			"or use %s", l.Algorithm, TokenBucket)
	case l.Burst < 0 || l.Burst > MaxAmount:
		found("burst", l.Burst, "{value} is out of bounds for {limit}; write 1 to %d", MaxAmount)
	}
	if l.Bytes && l.Algorithm == Concurrency {
		found("cost.bytes", l.Bytes, "has no meaning for %s, which counts jobs; leave it out, or "+
			"use %s", Concurrency, TokenBucket)
	}
	return all
}

// Validate returns an error if l can't be kept exactly. The error names the limit, the reason and
// the correction.
func (l Limit) Validate() error {
	_, err := l.arithmetic()
	return err
}

var (
	everyAlgorithm = []Algorithm{TokenBucket, LeakyBucket, SlidingWindowCounter, SlidingWindowLog,
		FixedWindow, Concurrency}
	everyPer = []Per{PerClient, PerIP, PerOperation, PerClientOperation, PerTier, PerCountry,
		PerGlobal}
)

// UnmarshalText reads the name of an algorithm. The error is the second half of a sentence whose
// subject is the text.
func (a *Algorithm) UnmarshalText(text []byte) error { return oneOf(a, text, everyAlgorithm) }

// UnmarshalText reads a kind of subject. The error has the form of Algorithm.UnmarshalText's.
func (p *Per) UnmarshalText(text []byte) error { return oneOf(p, text, everyPer) }

func oneOf[T ~string](to *T, text []byte, words []T) error {
	err := noneOf(T(text), words)
	if err == nil {
		*to = T(text)
	}
	return err
}

func noneOf[T ~string](word T, words []T) error {
	if slices.Contains(words, word) {
		return nil
	}
	return errors.New("is none of " + list(words))
}

func list[T ~string](words []T) string {
	var text []string
	for _, w := range words {
		text = append(text, string(w))
	}
	return strings.Join(text, ", ")
}
