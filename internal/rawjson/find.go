package rawjson

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Ambiguous is the error for a text that libraries would read in different ways: on the path of a
// pointer, an object has a name twice, or also in another case, which some libraries take for the
// same name.
type Ambiguous struct {
	Name  string // as in the pointer
	Given string // as spelled in the text; equal to Name if that is given twice
}

func (a *Ambiguous) Error() string {
	if a.Given == a.Name {
		return fmt.Sprintf("the name %q is given twice", a.Name)
	}
	return fmt.Sprintf("the name %q is spelled %q", a.Name, a.Given)
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// Find returns the value at a JSON Pointer (RFC 6901), or nil if there is none; null is a value.
// The pointer "" is the whole text; others begin with "/". The error is an *Ambiguous. Each step
// takes one pass over the value that the previous one found.
func Find(text []byte, pointer string) (value []byte, err error) {
	value = trim(text)
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = unescape.Replace(step)
		switch value[0] {
		case '{':
			value, err = memberOf(value, step)
		case '[':
			value = elementOf(value, step)
		default:
			value = nil
		}
		if value == nil || err != nil {
			return nil, err
		}
	}
	return value, nil
}

// memberOf returns an object's member, or nil if it has none of that name.
func memberOf(object []byte, name string) (found []byte, err error) {
	s, wanted := Scan(object), []byte(name)
	for s.Next() {
		label := s.Label()
		given := label[1 : len(label)-1]
		if bytes.IndexByte(given, '\\') >= 0 {
			text, _ := Text(label)
			given = []byte(text)
		}
		value, _ := s.Value()
		switch {
		case !bytes.EqualFold(given, wanted):
		case found != nil, !bytes.Equal(given, wanted):
			return nil, &Ambiguous{Name: name, Given: string(given)}
		default:
			found = value
		}
	}
	return found, nil
}

// elementOf returns an array's element, or nil if it has none of that number. Numbers with leading
// zeros match none.
func elementOf(array []byte, number string) []byte {
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || number[0] == '0' && number != "0" {
		return nil
	}
	s := Scan(array)
	for ; s.Next(); n-- {
		value, _ := s.Value()
		if n == 0 {
			return value
		}
	}
	return nil
}
