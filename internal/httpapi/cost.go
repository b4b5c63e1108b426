package httpapi

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"forebay/api"
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
	value, wrong := find(payload, c.From)
	if wrong != "" {
		return 0, &api.FieldError{Detail: wrong, Pointer: costPointer(c.From)}
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

var unescapeStep = strings.NewReplacer("~1", "/", "~0", "~")

// find returns the value at a JSON Pointer that begins with "/"; nil where there is none. Where the way there can be read
// in two ways it says what is wrong.
func find(value []byte, pointer string) (found []byte, wrong string) {
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = unescapeStep.Replace(step)
		switch value[0] {
		case '{':
			value, wrong = memberOf(value, step)
		case '[':
			value = elementOf(value, step)
		default:
			value = nil
		}
		if value == nil || wrong != "" {
			return nil, wrong
		}
	}
	return value, ""
}

// memberOf returns an object's member; nil where it has none of that name.
func memberOf(object []byte, name string) (found []byte, wrong string) {
	s, wanted := scanner{in: object}, []byte(name)
	for s.next() {
		label := s.label()
		given := label[1 : len(label)-1]
		if bytes.IndexByte(given, '\\') >= 0 {
			text, _ := textOf(label)
			given = []byte(text)
		}
		value, _ := s.value()
		switch {
		case !bytes.EqualFold(given, wanted):
		case !bytes.Equal(given, wanted):
			return nil, fmt.Sprintf("The name must be written %s, not %s.", brief(name), brief(string(given)))
		case found != nil:
			return nil, fmt.Sprintf("The name %s is given twice.", brief(name))
		default:
			found = value
		}
	}
	return found, ""
}

// elementOf returns an array's element; nil where it has none of that number.
func elementOf(array []byte, number string) []byte {
	n, ok := wholeNumber(number)
	if !ok && number != "0" {
		return nil
	}
	s := scanner{in: array}
	for ; s.next(); n-- {
		value, _ := s.value()
		if n == 0 {
			return value
		}
	}
	return nil
}
