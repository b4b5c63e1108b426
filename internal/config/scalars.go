package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

// Switch is what can be turned off: on or off in a config.
type Switch bool

// String is the switch as a config has it.
func (s Switch) String() string {
	if s {
		return "on"
	}
	return "off"
}

// Window is the time in which a limit allows its amount: a duration, or Day or Month.
type Window time.Duration

// Windows of the UTC calendar, for fixed windows.
const (
	Month Window = -1
	Day   Window = -2
)

// String is the window as a config has it.
func (w Window) String() string {
	switch w {
	case Month:
		return "month"
	case Day:
		return "day"
	}
	return formatDuration(time.Duration(w))
}

// Digest is the SHA-256 of an API key.
type Digest [sha256.Size]byte

// Secret is a value that is never shown: however it is printed or logged, only *** comes out.
// string(s) is its value.
type Secret string

// String hides the value.
func (s Secret) String() string { return "***" }

// MarshalText hides the value, from encoding/json and log/slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// SecretURL is a URL whose user and password are never shown. string(u) is its value.
type SecretURL string

// String hides what may be secret: user, password and query.
func (u SecretURL) String() string {
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok {
		return "***"
	}
	// The last @: a password that wasn't escaped may itself hold one, or a slash or a ?.
	user := ""
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, rest = "***@", rest[at+1:]
	}
	rest, _, query := strings.Cut(rest, "?")
	if query {
		rest += "?***"
	}
	return scheme + "://" + user + rest
}

// MarshalText hides what String does, from encoding/json and log/slog.
func (u SecretURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Errors of the parsers are the second half of a sentence that began with the value; they don't
// repeat it, since it may come from the environment.

var durationForm = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|s|m|h|d))+$`)
var durationPart = regexp.MustCompile(`([0-9.]+)([a-zµ]+)`)

// parseDuration reads Go's durations without sign, and d for 24 hours. A bare number has no
// meaning, not even 0.
func parseDuration(s string) (time.Duration, error) {
	if decimalForm.MatchString(s) {
		return 0, errors.New("has no unit; write the number with one, such as 500ms, 30s, 5m, 12h or 7d")
	}
	if !durationForm.MatchString(s) {
		return 0, errors.New("isn't a duration; write a number and a unit, such as 500ms, 30s, 5m, 12h or 7d")
	}
	var sum time.Duration
	for _, part := range durationPart.FindAllStringSubmatch(s, -1) {
		unit, times := part[2], time.Duration(1)
		if unit == "d" {
			unit, times = "h", 24
		}
		d, err := time.ParseDuration(part[1] + unit)
		if err != nil || d > (math.MaxInt64-sum)/times {
			return 0, errors.New("is longer than can be counted; write at most 366d")
		}
		sum += d * times
	}
	return sum, nil
}

// parseWindow reads a duration, or a window of the calendar.
func parseWindow(s string) (Window, error) {
	switch s {
	case "day":
		return Day, nil
	case "month":
		return Month, nil
	case "year", "week", "hour", "minute", "second":
		return 0, errors.New("isn't a window; write a number and a unit, such as 30s, 1h or 7d, or day or month of the calendar")
	}
	d, err := parseDuration(s)
	return Window(d), err
}

func parseSwitch(s string) (Switch, error) {
	switch s {
	case "on", "off":
		return s == "on", nil
	case "true", "yes":
		return false, errors.New("isn't a switch; write on")
	case "false", "no":
		return false, errors.New("isn't a switch; write off")
	}
	return false, errors.New("isn't a switch; write on or off")
}

func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day && d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

var sizeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(B|KB|MB|GB|KiB|MiB|GiB)$`)

var sizeUnits = map[string]float64{"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

func parseSize(s string) (Size, error) {
	m := sizeForm.FindStringSubmatch(s)
	if m == nil {
		if decimalForm.MatchString(s) {
			return 0, errors.New("has no unit; write the number with one, such as 100B, 512KiB, 1MiB or 10MB")
		}
		return 0, errors.New("isn't a size; write a number and a unit, such as 100B, 512KiB, 1MiB or 10MB")
	}
	n, err := strconv.ParseFloat(m[1], 64)
	n *= sizeUnits[m[2]]
	if err != nil || n > 1<<53 {
		return 0, errors.New("is larger than can be counted; write at most 64MiB")
	}
	if n != math.Trunc(n) {
		return 0, errors.New("isn't a whole number of bytes")
	}
	return Size(n), nil
}

// String is the size in the largest unit that it is a whole number of.
func (s Size) String() string {
	switch {
	case s > 0 && s%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", s>>30)
	case s > 0 && s%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", s>>20)
	case s > 0 && s%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", s>>10)
	}
	return fmt.Sprintf("%dB", s)
}

var errTooLarge = errors.New("is a larger number than can be counted")

var decimalForm = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)

// parseDecimal reads a plain number: no sign, exponent, infinity or NaN.
func parseDecimal(s string) (float64, error) {
	if !decimalForm.MatchString(s) {
		return 0, errors.New("isn't a plain number such as 1 or 0.5")
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, errTooLarge
	}
	return n, nil
}

func parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errTooLarge
	case err != nil:
		return 0, errors.New("isn't a whole number such as 10")
	}
	return n, nil
}

// checkRate holds a drain rate against the rules of the drain, which parses it for use.
func checkRate(s string) error {
	if s == "unlimited" {
		return nil
	}
	amount, unit, slash := strings.Cut(s, "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
	switch {
	case !slash && decimalForm.MatchString(s):
		return errors.New("has no unit; write the number per s, m, h or d, such as 5/s, 0.2/s or 6/m")
	case seconds == 0 || !decimalForm.MatchString(amount):
		return errors.New("isn't a rate; write a number per s, m, h or d, such as 5/s, 0.2/s or 6/m, or unlimited")
	}
	n, err := strconv.ParseFloat(amount, 64)
	switch {
	case err == nil && n == 0:
		return errors.New("would never start a job; write a rate over 0 (to stop a drain for a while, pause the backend)")
	case err != nil || n/seconds > 100_000:
		return errors.New("is over 100000/s, more than timers can keep; write a lower rate, or unlimited")
	case seconds/n > 30*86400:
		return errors.New("is under one in 30 days, later than any job may start; write a higher rate")
	}
	return nil
}

// parseNetwork reads a CIDR, or an address as the network of itself alone.
func parseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("isn't a network; write a CIDR such as 10.0.0.0/8 or 2001:db8::/32, or one address")
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("is an IPv4 network in IPv6 form; write it as IPv4, such as 10.0.0.0/8")
	case p != p.Masked():
		return netip.Prefix{}, errors.New("has bits outside its mask; write zeros there, or the address alone")
	}
	return p, nil
}

func parseDigest(s string) (Digest, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != sha256.Size {
		return Digest{}, errors.New(`must be 64 hexadecimal digits: printf %s "$KEY" | sha256sum`)
	}
	return Digest(b), nil
}
