package client

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"time"
)

// Jitter says which part of a wait is random.
type Jitter int

// Jitters.
const (
	// Full makes all of it random. It is the default, since it best spreads clients that were
	// refused together.
	Full Jitter = iota
	// Equal makes the second half of it random.
	Equal
	// None makes no part of it random: clients that were refused together return together.
	None
)

// Backoff determines the waits between the tries of a call. The zero value is the default: full
// jitter under a ceiling that starts at half a second and doubles up to 30 s.
type Backoff struct {
	Base   time.Duration // ceiling of the wait after the first try; default 500 ms
	Cap    time.Duration // bound of the doubled ceiling; default 30 s, or Base if that is more
	Jitter Jitter
}

// Defaults of a Backoff.
const (
	DefaultBase = 500 * time.Millisecond
	DefaultCap  = 30 * time.Second
)

// jitterPart bounds the jitter on top of a wait that the server asked for: its range is at least
// 1/jitterPart of that wait. A client that has to wait a minute can wait some seconds more, and a
// thousand clients need those seconds to spread.
const jitterPart = 10

func (b Backoff) withDefaults() (Backoff, error) {
	if b.Base < 0 || b.Cap < 0 || b.Jitter < Full || b.Jitter > None {
		return b, errors.New("forebay: Backoff needs a Base and a Cap above 0, " +
			"and a Jitter of Full, Equal or None")
	}
	b.Base = or(b.Base, DefaultBase)
	b.Cap = or(b.Cap, max(DefaultCap, b.Base))
	if b.Cap < b.Base {
		return b, errors.New("forebay: Backoff.Cap is less than Backoff.Base")
	}
	return b, nil
}

// Delay returns the wait after the n-th try failed (n from 1). asked is the wait that the server
// asked for, or 0. random is uniform in [0, 1).
//
// The ceiling is Base × 2^(n-1), at most Cap. Full draws from (0, ceiling], Equal from [ceiling/2,
// ceiling], and None is the ceiling. asked is a floor: the fixed part is at least asked, and the
// random part is added to it, from a range of at least a tenth of asked. The result is always above
// 0.
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
	// The product may round up in its last digit; min keeps it in range.
	extra := min(time.Duration((1-random)*float64(drawn)), drawn)
	if fixed > math.MaxInt64-extra {
		return math.MaxInt64
	}
	return max(fixed+extra, 1)
}

// ceiling doubles Base without ever passing Cap, so it can't overflow for any n.
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

// retryAfter returns the wait that an answer asks for: in seconds, or until a date in any of HTTP's
// three forms. It returns 0 if there is none, if it has passed, or if it is malformed.
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
	// The date is by the server's clock, like the answer's Date. The local clock may differ.
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(until.Sub(now), 0)
}

// seconds parses digits. More than a Duration holds gives the longest Duration.
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
