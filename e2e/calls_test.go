package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// calls NAME [-job ID] [-path PATH] [-from N] [-last N] EXPECTATION
//
// checks the calls that the backend has got, or some of them. Behind until, -last expects a rate
// that a busy machine can't keep all the time. Expectations:
//
//	count N|LO..HI            the number of calls
//	running N|LO..HI          the number being answered now
//	ended N|LO..HI            the number answered in full
//	rate R TOLERANCE%         starts per second, from the first to the last
//	most N DURATION           starts in any window of that length
//	gaps LO..HI               durations from each start to the next; either bound may be absent
//	lasted LO..HI             from the first start to the last
//	attempts N,N,...          their Forebay-Attempt fields, in order
//	per-job N|LO..HI          calls of each job
//	keyed                     each has its job's id as Idempotency-Key; no two jobs share one
//	apart                     no two calls of one job at the same time
//	aborted                   each was aborted by the caller
//	header NAME REGEXP        each has that field, and all of its value matches
//	signed SECRET             each is a webhook that the official library verifies
//	body FILE|TEXT            each has exactly these bytes; a FILE is one of the script's
//	delay pN DURATION         the N-th percentile from 202 to call
//	path-order REGEXP         the paths in order of start, joined by spaces, match
func callsCommand(s *story, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: calls NAME [-job ID] [-path PATH] [-from N] [-last N] " +
			"EXPECTATION")
	}
	b := s.backends[args[0]]
	if b == nil {
		return fmt.Errorf("backend %s hasn't been started", args[0])
	}
	flags := newFlags("calls")
	job := flags.String("job", "", "")
	path := flags.String("path", "", "")
	from := flags.Int("from", 1, "")
	last := flags.Int("last", 0, "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	calls := b.log(func(c call) bool {
		return (*job == "" || c.job() == *job) && (*path == "" || c.path == *path)
	})
	calls = calls[min(max(*from-1, 0), len(calls)):]
	if *last > 0 {
		if len(calls) < *last {
			return fmt.Errorf("there were %d, want %d", len(calls), *last)
		}
		calls = calls[len(calls)-*last:]
	}
	args = flags.Args()
	if len(args) == 0 {
		return errors.New("calls: what is expected?")
	}
	name, args := args[0], args[1:]
	check, known := expectations[name]
	if !known {
		return fmt.Errorf("calls: %q isn't known", name)
	}
	if len(args) != check.args {
		return fmt.Errorf("calls: %s takes %d values", name, check.args)
	}
	if check.some && len(calls) == 0 {
		return errors.New("there were none")
	}
	return check.holds(s, calls, args)
}

// expectation is a kind of expectation of calls.
type expectation struct {
	args  int
	some  bool // needs at least one call
	holds func(s *story, calls []call, args []string) error
}

var expectations = map[string]expectation{
	"count":      {1, false, holdsCount},
	"running":    {1, false, holdsRunning},
	"ended":      {1, false, holdsEnded},
	"rate":       {2, true, holdsRate},
	"most":       {2, true, holdsMost},
	"gaps":       {1, true, holdsGaps},
	"lasted":     {1, true, holdsLasted},
	"attempts":   {1, true, holdsAttempts},
	"per-job":    {1, true, holdsPerJob},
	"keyed":      {0, true, holdsKeyed},
	"apart":      {0, true, holdsApart},
	"aborted":    {0, true, holdsAborted},
	"header":     {2, true, holdsHeader},
	"body":       {1, true, holdsBody},
	"delay":      {2, true, holdsDelay},
	"path-order": {1, true, holdsPathOrder},
	"signed":     {1, true, holdsSigned},
}

// inRange compares a number with "5" or "3..7".
func inRange(of string, n int, want string) error {
	lo, hi, isRange := strings.Cut(want, "..")
	if !isRange {
		hi = lo
	}
	least, err1 := strconv.Atoi(lo)
	most, err2 := strconv.Atoi(hi)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if n < least || n > most {
		return fmt.Errorf("%d %s, want %s", n, of, want)
	}
	return nil
}

// between compares a duration with "1s..2s", "..2s" or "1s..".
func between(of string, d time.Duration, want string) error {
	lo, hi, isRange := strings.Cut(want, "..")
	if !isRange {
		return fmt.Errorf("%q: write a range such as 1s..2s", want)
	}
	least, most := time.Duration(math.MinInt64), time.Duration(math.MaxInt64)
	var err error
	if lo != "" {
		if least, err = time.ParseDuration(lo); err != nil {
			return err
		}
	}
	if hi != "" {
		if most, err = time.ParseDuration(hi); err != nil {
			return err
		}
	}
	if d < least || d > most {
		return fmt.Errorf("%s %v, want %s", of, d.Round(time.Millisecond), want)
	}
	return nil
}

func holdsCount(_ *story, calls []call, args []string) error {
	return inRange("calls", len(calls), args[0])
}

func holdsRunning(_ *story, calls []call, args []string) error {
	running := slices.DeleteFunc(calls, func(c call) bool { return !c.ended.IsZero() })
	return inRange("calls are running", len(running), args[0])
}

func holdsEnded(_ *story, calls []call, args []string) error {
	ended := slices.DeleteFunc(calls, func(c call) bool { return c.ended.IsZero() || c.aborted })
	return inRange("calls have ended", len(ended), args[0])
}

func holdsRate(_ *story, calls []call, args []string) error {
	want, err1 := strconv.ParseFloat(args[0], 64)
	tolerance, err2 := strconv.ParseFloat(strings.TrimSuffix(args[1], "%"), 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	got := float64(len(calls)-1) / span(calls).Seconds()
	if math.IsNaN(got) || math.Abs(got-want) > want*tolerance/100 {
		return fmt.Errorf("%d starts came at %.2f per second, want %v within %v %%",
			len(calls), got, want, tolerance)
	}
	return nil
}

func span(calls []call) time.Duration { return calls[len(calls)-1].begun.Sub(calls[0].begun) }

func holdsMost(_ *story, calls []call, args []string) error {
	most, err1 := strconv.Atoi(args[0])
	window, err2 := time.ParseDuration(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	first := 0
	for i, c := range calls {
		for c.begun.Sub(calls[first].begun) >= window {
			first++
		}
		if n := i - first + 1; n > most {
			return fmt.Errorf("%d starts within %v (calls %d to %d), want at most %d",
				n, window, first+1, i+1, most)
		}
	}
	return nil
}

func holdsGaps(_ *story, calls []call, args []string) error {
	for i := 1; i < len(calls); i++ {
		of := fmt.Sprintf("from start %d to the next it took", i)
		if err := between(of, calls[i].begun.Sub(calls[i-1].begun), args[0]); err != nil {
			return err
		}
	}
	return nil
}

func holdsLasted(_ *story, calls []call, args []string) error {
	return between("from the first start to the last it took", span(calls), args[0])
}

func holdsAttempts(_ *story, calls []call, args []string) error {
	var got []string
	for _, c := range calls {
		got = append(got, c.header.Get("Forebay-Attempt"))
	}
	if text := strings.Join(got, ","); text != args[0] {
		return fmt.Errorf("attempts %s, want %s", text, args[0])
	}
	return nil
}

func holdsPerJob(_ *story, calls []call, args []string) error {
	for job, n := range countBy(calls, func(c call) string { return c.job() }) {
		if err := inRange("calls for "+job, n, args[0]); err != nil {
			return err
		}
	}
	return nil
}

func countBy(calls []call, key func(call) string) map[string]int {
	counts := map[string]int{}
	for _, c := range calls {
		counts[key(c)]++
	}
	return counts
}

func holdsKeyed(_ *story, calls []call, _ []string) error {
	for _, c := range calls {
		if got, want := c.header.Get("Idempotency-Key"), `"`+c.job()+`"`; c.job() == "" ||
			got != want {
			return fmt.Errorf("Idempotency-Key: %s for job %q", got, c.job())
		}
	}
	return nil
}

func holdsApart(_ *story, calls []call, _ []string) error {
	last := map[string]call{}
	for _, c := range calls {
		before, again := last[c.job()]
		if again && (before.ended.IsZero() || before.ended.After(c.begun)) {
			return fmt.Errorf("job %s was called again while its last call ran", c.job())
		}
		last[c.job()] = c
	}
	return nil
}

func holdsAborted(_ *story, calls []call, _ []string) error {
	for i, c := range calls {
		if !c.aborted {
			return fmt.Errorf("call %d wasn't broken off", i+1)
		}
	}
	return nil
}

func holdsHeader(_ *story, calls []call, args []string) error {
	re, err := whole(args[1])
	if err != nil {
		return err
	}
	for i, c := range calls {
		if got := c.header.Get(args[0]); !re.MatchString(got) {
			return fmt.Errorf("call %d has %s: %q, want %s", i+1, args[0], got, args[1])
		}
	}
	return nil
}

// whole compiles a pattern that must match all of a text.
func whole(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(`\A(?s:` + pattern + `)\z`)
}

func holdsBody(s *story, calls []call, args []string) error {
	want := []byte(args[0])
	if exists(s.ts.MkAbs(args[0])) {
		want = []byte(s.ts.ReadFile(args[0]))
	}
	for i, c := range calls {
		if !bytes.Equal(c.body, want) {
			return fmt.Errorf("call %d has the body %q, want %q", i+1, c.body, want)
		}
	}
	return nil
}

func holdsDelay(s *story, calls []call, args []string) error {
	percent, err1 := strconv.ParseFloat(strings.TrimPrefix(args[0], "p"), 64)
	limit, err2 := time.ParseDuration(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var delays []time.Duration
	for _, c := range calls {
		at, ok := s.accepted[c.job()]
		if !ok {
			return fmt.Errorf("no 202 was seen for job %s", c.job())
		}
		delays = append(delays, c.begun.Sub(at))
	}
	slices.Sort(delays)
	s.ts.Logf("from 202 to call: median %v, slowest %v", delays[len(delays)/2],
		delays[len(delays)-1])
	if got := delays[min(int(percent/100*float64(len(delays))), len(delays)-1)]; got > limit {
		return fmt.Errorf("%s from 202 to call is %v, want at most %v", args[0], got, limit)
	}
	return nil
}

func holdsPathOrder(_ *story, calls []call, args []string) error {
	re, err := whole(args[0])
	if err != nil {
		return err
	}
	var paths []string
	for _, c := range calls {
		paths = append(paths, c.path)
	}
	if got := strings.Join(paths, " "); !re.MatchString(got) {
		return fmt.Errorf("calls came as %s, want %s", got, args[0])
	}
	return nil
}

func holdsSigned(_ *story, calls []call, args []string) error {
	official, err := standardwebhooks.NewWebhook(args[0])
	if err != nil {
		return err
	}
	for i, c := range calls {
		if err := official.Verify(c.body, c.header); err != nil {
			return fmt.Errorf("call %d: %w", i+1, err)
		}
	}
	return nil
}
