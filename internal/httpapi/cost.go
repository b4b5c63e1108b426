package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/rawjson"
	"github.com/forebay/forebay/internal/web"
)

// A payload that says what it costs is trusted for nothing: what is read here must be what any backend's JSON library reads, or a
// request could be charged for one page and print a thousand. So on the way to the number a name that is given twice is refused, and
// one that differs from the wanted one in case alone (some libraries take it for the same), and the number itself
// must be digits alone: what 1e2 and 2.0 are, libraries don't agree on.

// of returns what a request with this payload, which is valid JSON, costs; or what is wrong with the payload.
func (c Cost) of(payload []byte) (int64, *api.FieldError) {
	if c.From == "" {
		return c.Fixed, nil
	}
	value, err := rawjson.Find(payload, c.From)
	if twoWays, ok := errors.AsType[*rawjson.Ambiguous](err); ok {
		return 0, &api.FieldError{Detail: unclear(twoWays), Pointer: costPointer(c.From)}
	}
	if value == nil || string(value) == "null" { // as many clients write what is absent
		return c.Default, nil
	}
	n, ok := wholeNumber(string(value))
	if !ok || n > c.Max {
		return 0, &api.FieldError{Detail: fmt.Sprintf("Must be a whole number from 1 to %d, in digits alone: it is what this request costs.", c.Max),
			Pointer: costPointer(c.From)}
	}
	return n, nil
}

// standard is what a request costs of which nothing more is known.
func (c Cost) standard() int64 {
	if c.From == "" {
		return c.Fixed
	}
	return c.Default
}

// wholeNumber reads a number ≥ 1 that is written in digits alone, without zeroes in front.
func wholeNumber(text string) (int64, bool) {
	if text == "" || text[0] < '1' || text[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// costPointer is the place in the body that a pointer into the payload means, as URI fragment.
func costPointer(from string) string {
	steps := strings.Split(from, "/")
	for i := range steps {
		steps[i] = url.PathEscape(steps[i])
	}
	return "#/payload" + strings.Join(steps, "/")
}

// unclear says in words for a client what is wrong with the way to a value.
func unclear(a *rawjson.Ambiguous) string {
	if a.Given == a.Name {
		return fmt.Sprintf("The name %s is given twice.", web.Brief(a.Name))
	}
	return fmt.Sprintf("The name must be written %s, not %s.", web.Brief(a.Name), web.Brief(a.Given))
}
