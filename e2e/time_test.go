package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// pollEvery is how often until and always run their command.
const pollEvery = 20 * time.Millisecond

// inner runs a command that follows another one; ! before it negates it.
func (s *story) inner(args []string) error {
	if len(args) == 0 {
		return errors.New("no command to run")
	}
	negated := args[0] == "!"
	if negated {
		args = args[1:]
	}
	if len(args) == 0 || words[args[0]] == nil {
		return fmt.Errorf("%q isn't one of the story's commands", strings.Join(args, " "))
	}
	err := words[args[0]](s, args[1:])
	if negated {
		if err == nil {
			return fmt.Errorf("%s: it holds, and must not", strings.Join(args, " "))
		}
		return nil
	}
	return err
}

// duration parses the first argument and returns the others.
func duration(args []string) (time.Duration, []string, error) {
	if len(args) < 2 {
		return 0, nil, errors.New("usage: DURATION COMMAND...")
	}
	d, err := time.ParseDuration(args[0])
	return d, args[1:], err
}

// until DURATION COMMAND...
//
// repeats the command until it succeeds.
func untilCommand(s *story, args []string) error {
	limit, args, err := duration(args)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(pollEvery) {
		err := s.inner(args)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

// always DURATION COMMAND...
//
// expects the command to succeed each time during that time.
func alwaysCommand(s *story, args []string) error {
	span, args, err := duration(args)
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < span; time.Sleep(pollEvery) {
		if err := s.inner(args); err != nil {
			return fmt.Errorf("after %v: %w", time.Since(began).Round(time.Millisecond), err)
		}
	}
	return nil
}

// each LIST COMMAND...
//
// runs the command for every value of a list that many has saved; {} in it stands for the value.
func eachCommand(s *story, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: each LIST COMMAND...")
	}
	values := s.lists[args[0]]
	if len(values) == 0 {
		return fmt.Errorf("the list %s is empty", args[0])
	}
	for _, value := range values {
		filled := make([]string, len(args)-1)
		for i, arg := range args[1:] {
			filled[i] = strings.ReplaceAll(arg, "{}", value)
		}
		if err := s.inner(filled); err != nil {
			return fmt.Errorf("%s: %w", value, err)
		}
	}
	return nil
}

// obey SECONDS
//
// waits exactly as long as a Retry-After says, like a client.
func obeyCommand(s *story, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: obey SECONDS")
	}
	seconds, err := strconv.Atoi(args[0])
	if err != nil || seconds < 1 {
		return fmt.Errorf("%q is no Retry-After", args[0])
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	return nil
}
