package strictyaml

import (
	"errors"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// redacted is a value of which messages and descriptions show only this text. A type is secret as a
// whole if its zero value has the text ***.
type redacted interface{ Redacted() string }

const hidden = "***"

// redactedText returns what may be shown of a file's text for a value of a type, if the text has
// variables; "": nothing.
func redactedText(t reflect.Type, text string) string {
	zero, hides := reflect.Zero(t).Interface().(redacted)
	switch {
	case !hides:
		return text
	case zero.Redacted() == hidden:
		return ""
	case t.Kind() == reflect.String && !onlyVariable.MatchString(text):
		return reflect.ValueOf(text).Convert(t).Interface().(redacted).Redacted()
	}
	return text
}

// Secret is a value that is never shown: printed or logged, it is ***. string(s) is its value.
type Secret string

// Redacted hides the value.
func (s Secret) Redacted() string { return hidden }

// String hides the value.
func (s Secret) String() string { return hidden }

// MarshalText hides the value, from encoding/json and log/slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// SecretURL is a URL whose user and password are never shown. string(u) is its value.
type SecretURL string

// Redacted hides the parts that may be secret: user, password and query.
func (u SecretURL) Redacted() string {
	if u == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok {
		return hidden
	}
	// The last @: a password that wasn't escaped may itself contain an @, a slash or a ?.
	user := ""
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, rest = hidden+"@", rest[at+1:]
	}
	rest, _, query := strings.Cut(rest, "?")
	if query {
		rest += "?" + hidden
	}
	return scheme + "://" + user + rest
}

// String hides the same parts as Redacted.
func (u SecretURL) String() string { return u.Redacted() }

// MarshalText hides the same parts as Redacted, from encoding/json and log/slog.
func (u SecretURL) MarshalText() ([]byte, error) { return []byte(u.Redacted()), nil }

// Errors of the parsers below have the form of UnmarshalText's.

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

// parseNetwork reads a CIDR, or an address as a network of one.
func parseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("isn't a network; write a CIDR such as 10.0.0.0/8 or " +
			"2001:db8::/32, or one address")
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("is an IPv4 network in IPv6 form; write it as IPv4, " +
			"such as 10.0.0.0/8")
	case p != p.Masked():
		return netip.Prefix{}, errors.New("has bits outside its mask; write zeros there, or the " +
			"address alone")
	}
	return p, nil
}
