package e2e

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// backend NAME start                 a backend at $NAME; answers 200 {"ok":true}, and /status/N with N
// backend NAME latency DURATION      the length of each call from now on
// backend NAME bears N               beyond N calls in any second it answers 503; 0: any number
// backend NAME answer [-times N] [-H 'NAME: VALUE'] [-body TEXT|-hex HEX|-file FILE] STATUS...
//
//	its next answers, one per call; the status "drop" breaks the connection instead
//
// backend NAME always [-H ...] [-body ...] STATUS    its answer to all further calls
// backend NAME down                  breaks and refuses connections
// backend NAME up                    accepts connections again
// backend NAME forget                forgets the calls so far
func backendCommand(s *story, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: backend NAME start|latency|bears|answer|always|down|up|forget")
	}
	name, verb, args := args[0], args[1], args[2:]
	b := s.backends[name]
	if verb == "start" {
		if b != nil {
			return fmt.Errorf("backend %s runs already", name)
		}
		b, err := newBackend()
		if err != nil {
			return err
		}
		s.backends[name] = b
		s.ts.Setenv(name, b.url())
		s.ts.Setenv(name+"_port", b.url()[strings.LastIndexByte(b.url(), ':')+1:])
		return nil
	}
	if b == nil {
		return fmt.Errorf("backend %s hasn't been started", name)
	}
	switch verb {
	case "up":
		return b.up()
	case "down":
		b.down()
		return nil
	}
	change, err := s.change(verb, args)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
	return nil
}

// change parses a change of a backend.
func (s *story) change(verb string, args []string) (func(*backend), error) {
	switch {
	case verb == "forget":
		return func(b *backend) { b.calls = nil }, nil
	case verb == "latency" && len(args) == 1:
		d, err := time.ParseDuration(args[0])
		return func(b *backend) { b.latency = d }, err
	case verb == "bears" && len(args) == 1:
		n, err := strconv.Atoi(args[0])
		return func(b *backend) { b.bears = n }, err
	case verb == "answer", verb == "always":
		answers, err := s.answers(args)
		if err != nil {
			return nil, err
		}
		return func(b *backend) {
			if verb == "answer" {
				b.next = append(b.next, answers...)
			} else {
				b.next, b.always = nil, answers[0]
			}
		}, nil
	}
	return nil, fmt.Errorf("backend: %s %q isn't understood", verb, args)
}

func (s *story) answers(args []string) ([]answer, error) {
	flags := newFlags("answer")
	times := flags.Int("times", 1, "")
	body := flags.String("body", "", "")
	file := flags.String("file", "", "")
	flags.Func("hex", "", func(text string) error {
		bytes, err := hex.DecodeString(text)
		*body = string(bytes)
		return err
	})
	header := headerFlag(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() == 0 || *times < 1 {
		return nil, errors.New("an answer needs a status")
	}
	if *file != "" {
		*body = s.ts.ReadFile(*file)
	}
	var answers []answer
	for range *times {
		for _, text := range flags.Args() {
			a := answer{header: header, body: []byte(*body)}
			var err error
			if a.drop = text == "drop"; !a.drop {
				if a.status, err = strconv.Atoi(text); err != nil {
					return nil, err
				}
			}
			answers = append(answers, a)
		}
	}
	return answers, nil
}

func newFlags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error has the message
	return flags
}

// headerFlag adds the flag -H 'Name: value', which may be given more than once.
func headerFlag(flags *flag.FlagSet) http.Header {
	header := http.Header{}
	flags.Func("H", "", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if !ok {
			return fmt.Errorf("%q is no header line", text)
		}
		header.Add(name, strings.TrimSpace(value))
		return nil
	})
	return header
}
