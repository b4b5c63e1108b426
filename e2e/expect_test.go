package e2e

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// expect checks an answer against one expectation:
//
//	202                   its status, as a pattern
//	<1s                   its header came within that time
//	/queue/position=1     a JSON Pointer's value; the pattern must match all of it
//	Retry-After:[1-9]     a header field; the pattern must match all of it
//	!/queue, !Age         there is no such value, no such field
//	@FILE, @0xHEX         the body is exactly that file of the script, or exactly those bytes
//	~REGEXP, !~REGEXP     the body has a match, or has none
//	NAME:=/job_id         saves a value in $NAME; also NAME:=Retry-After (a field), NAME:=@ (the
//	                      body) and NAME:=#lines (the number of lines of the body that are no
//	                      comments)
func (s *story) expect(got reply, want string) error {
	if name, source, ok := strings.Cut(want, ":="); ok {
		value, err := got.value(source)
		if err == nil {
			s.ts.Setenv(name, value)
		}
		return err
	}
	text, absent := strings.CutPrefix(want, "!")
	switch {
	case strings.HasPrefix(text, "~"):
		re, err := regexp.Compile("(?m)" + text[1:])
		if err != nil {
			return err
		}
		if re.Match(got.body) == absent {
			return fmt.Errorf("the body against %s", want)
		}
	case absent:
		if value, err := got.value(text); err == nil {
			return fmt.Errorf("%s is %q, want none", text, value)
		}
	case strings.HasPrefix(text, "<"):
		limit, err := time.ParseDuration(text[1:])
		if err != nil {
			return err
		}
		if got.took > limit {
			return fmt.Errorf("it took %v, want at most %v", got.took, limit)
		}
	case strings.HasPrefix(text, "@"):
		return s.expectBody(got.body, text[1:])
	case strings.HasPrefix(text, "/"), strings.HasPrefix(text, "#"):
		return got.matches(text, "=")
	case strings.Contains(text, ":"):
		return got.matches(text, ":")
	default:
		re, err := whole(text)
		if err != nil {
			return err
		}
		if !re.MatchString(strconv.Itoa(got.status)) {
			return fmt.Errorf("status %d, want %s", got.status, text)
		}
	}
	return nil
}

// holds FILE REGEXP
//
// expects a match in a file that another program may still be writing to.
func holdsCommand(s *story, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: holds FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(s.ts.MkAbs(args[0]))
	if err == nil && !re.Match(text) {
		err = fmt.Errorf("%s has no match of %s:\n%s", args[0], re, tail(text))
	}
	return err
}

func (s *story) expectBody(got []byte, source string) error {
	var want []byte
	if digits, ok := strings.CutPrefix(source, "0x"); ok {
		var err error
		if want, err = hex.DecodeString(digits); err != nil {
			return err
		}
	} else {
		want = []byte(s.ts.ReadFile(source))
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the body isn't that of %s", source)
	}
	return nil
}

// matches compares the value before the separator with the pattern behind it.
func (r reply) matches(want, separator string) error {
	source, pattern, ok := strings.Cut(want, separator)
	if !ok {
		return fmt.Errorf("the expectation %q has no %s", want, separator)
	}
	re, err := whole(pattern)
	if err != nil {
		return err
	}
	value, err := r.value(source)
	if err != nil {
		return err
	}
	if !re.MatchString(value) {
		return fmt.Errorf("%s is %q, want %s", source, value, pattern)
	}
	return nil
}

// value returns the value of a JSON Pointer or of a header field, the body (@), or its number of
// lines (#lines).
func (r reply) value(source string) (string, error) {
	switch {
	case strings.HasPrefix(source, "/"):
		return r.pointer(source)
	case source == "@":
		return string(r.body), nil
	case source == "#lines":
		n := 0
		for line := range bytes.Lines(r.body) {
			if !bytes.HasPrefix(line, []byte("#")) {
				n++
			}
		}
		return strconv.Itoa(n), nil
	}
	values := r.header.Values(source)
	switch len(values) {
	case 0:
		return "", fmt.Errorf("there is no %s", source)
	case 1:
		return values[0], nil
	}
	return "", errors.New(source + " is there more than once")
}
