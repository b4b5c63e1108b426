package client

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"time"
)

// Jitter is how much of a backoff is drawn.
type Jitter int

// Jitters.
const (
	Full  Jitter = iota // all of it: between nothing and the whole. It spreads those who were refused together best, and is the default
	Equal               // the second half of it
	None                // nothing: those who were refused together come back together
)

// Backoff is what lies between the tries of a call. The zero value is the default: full jitter under a ceiling of half a second, doubling up to 30 s.
type Backoff struct {
	Base   time.Duration // ceiling of the wait after the first try; default 500 ms
	Cap    time.Duration // what the doubled ceiling never passes; default 30 s, or Base where that is more
	Jitter Jitter
}

// Defaults of a Backoff.
const (
	DefaultBase = 500 * time.Millisecond
	DefaultCap  = 30 * time.Second
)

// jitterPart: the jitter on top of a wait that the server asked for is at least this part of it. Whoever has to wait a minute doesn't mind some
// seconds, and a thousand of them need those to come apart.
const jitterPart = 10

func (b Backoff) withDefaults() (Backoff, error) {
	if b.Base < 0 || b.Cap < 0 || b.Jitter < Full || b.Jitter > None {
		return b, errors.New("forebay: Backoff needs a Base and a Cap above 0, and a Jitter of Full, Equal or None")
	}
	b.Base = or(b.Base, DefaultBase)
	b.Cap = or(b.Cap, max(DefaultCap, b.Base))
	if b.Cap < b.Base {
		return b, errors.New("forebay: Backoff.Cap is less than Backoff.Base")
	}
	return b, nil
}

// Delay is the wait after the n-th try failed (n from 1), where the server asked for a wait of asked (0: it didn't); random is uniform in [0, 1).
//
// The ceiling is Base × 2^(n-1), at most Cap. Full jitter draws from (0, ceiling], Equal from [ceiling/2, ceiling], None is the ceiling.
// asked is a floor: what isn't drawn is at least asked, and what is drawn comes on top of it, out of a range of at least a tenth of asked. It is always above 0.
func (b Backoff) Delay(n int, asked time.Duration, random float64) time.Duration {
	if usable, err := b.withDefaults(); err == nil {
		b = usable
	}
	ceiling := b.ceiling(n)
	fixed, drawn := time.Duration(0), ceiling
	switch b.Jitter {
	case Equal:
		fixed, drawn = ceiling/2, ceiling-ceiling/2
	case None:
		fixed, drawn = ceiling, 0
	}
	if asked > 0 {
		fixed = max(fixed, asked)
		if b.Jitter != None {
			drawn = max(drawn, asked/jitterPart)
		}
	}
	// The product may round up by as much as its last digit; the range is kept all the same.
	extra := min(time.Duration((1-random)*float64(drawn)), drawn)
	if fixed > math.MaxInt64-extra {
		return math.MaxInt64
	}
	return max(fixed+extra, 1)
}

// ceiling doubles without ever passing Cap, so that it can't overflow at whatever n.
func (b Backoff) ceiling(n int) time.Duration {
	ceiling := b.Base
	for i := 1; i < n && ceiling < b.Cap; i++ {
		if ceiling > b.Cap/2 {
			return b.Cap
		}
		ceiling *= 2
	}
	return ceiling
}

// retryAfter reads the wait that an answer asks for: in seconds, or until a date in any of HTTP's three forms. 0: none, one that is over, or
// one that can't be understood.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.Trim(h.Get("Retry-After"), " \t")
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		return seconds(text)
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	// The date is of the server's clock, and so is the answer's Date; ours may be another.
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(until.Sub(now), 0)
}

// seconds reads digits; more than a Duration holds is the longest Duration.
func seconds(digits string) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	var n int64
	for _, d := range []byte(digits) {
		if n = n*10 + int64(d-'0'); n > most {
			return math.MaxInt64
		}
	}
	return time.Duration(n) * time.Second
}
