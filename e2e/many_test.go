package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// many [-c N] [-over DURATION] [-follow URL[,URL...]] [-H ...] [-from ...] [-d ...] N METHOD
// URL[,URL...] [-> EXPECTATION...]
//
// sends N requests, at most -c (8) at a time. {n} in them stands for the number of each, from 1,
// and the URLs are used in turn. With -over, they come at random moments of that time instead of as
// fast as possible. With -follow, the status of each accepted job is requested at once at all those
// URLs, and must be there.
//
// Expectations: 202=10 or 429=30..40 (the number of answers with a status; a status that isn't
// named must not occur), <1s (each answer's header came within that time), all<9s (all came within
// that time), LIST:=/job_id (saves the value of each answer that has it, for each).
func manyCommand(s *story, args []string) error {
	const usage = "usage: many [-c N] [-over DURATION] [-follow URL,...] [-H ...] [-from ...] " +
		"[-d ...] N METHOD URL[,URL...] -> EXPECTATION..."
	flags := newFlags("many")
	atOnce := flags.Int("c", 8, "")
	over := flags.Duration("over", 0, "")
	follow := flags.String("follow", "", "")
	data := flags.String("d", "", "")
	r := request{header: headerFlag(flags), method: http.MethodPost}
	flags.StringVar(&r.from, "from", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	args = flags.Args()
	if len(args) < 4 || args[3] != "->" {
		return errors.New(usage)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 || *atOnce < 1 {
		return errors.New(usage)
	}
	r.method, r.urls, r.body = args[1], strings.Split(args[2], ","), *data
	if r.body != "" {
		r.header.Set("Content-Type", "application/json")
	}
	one := func(i int) (reply, error) {
		if *over > 0 {
			time.Sleep(rand.N(*over)) // jobs come at random moments
		}
		got, err := s.send(r, i)
		if err == nil && *follow != "" && got.status == http.StatusAccepted {
			err = s.follow(got, r.header, strings.Split(*follow, ","))
		}
		return got, err
	}
	if *over > 0 {
		*atOnce = n // each has its own moment
	}
	began := time.Now()
	replies, err := inParallel(n, *atOnce, one)
	if err != nil {
		return err
	}
	return s.expectMany(crowd{replies, time.Since(began)}, args[4:])
}

// inParallel runs do for 1 to n, at most atOnce at a time, and returns all results, or the errors.
func inParallel[T any](n, atOnce int, do func(i int) (T, error)) ([]T, error) {
	out, errs := make([]T, n), make([]error, n)
	var all sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range n {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			out[i], errs[i] = do(i + 1)
		})
	}
	all.Wait()
	return out, errors.Join(errs...)
}

// follow requests the status of a job that was just accepted.
func (s *story) follow(accepted reply, header http.Header, bases []string) error {
	path := accepted.header.Get("Location")
	for _, base := range bases {
		got, err := s.send(request{method: http.MethodGet, urls: []string{base + path},
			header: header}, 0)
		if err != nil {
			return err
		}
		if got.status != http.StatusOK {
			return fmt.Errorf("GET %s%s at once after its 202: %s", base, path, got)
		}
	}
	return nil
}

// crowd holds the answers to many.
type crowd struct {
	replies []reply
	took    time.Duration // from the first request to the last answer
}

func (s *story) expectMany(c crowd, wants []string) error {
	counted := map[string]bool{}
	for _, want := range wants {
		list, source, saves := strings.Cut(want, ":=")
		status, count, counts := strings.Cut(want, "=")
		var err error
		switch {
		case saves:
			s.lists[list] = c.values(source)
		case strings.HasPrefix(want, "<"):
			err = between("the slowest answer took", c.slowest(), ".."+want[1:])
		case strings.HasPrefix(want, "all<"):
			err = between("the answers took", c.took, ".."+want[len("all<"):])
		case counts:
			counted[status] = true
			err = c.expectCount(status, count)
		default:
			err = fmt.Errorf("the expectation %q isn't understood", want)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range c.replies {
		if len(counted) > 0 && !counted[strconv.Itoa(r.status)] {
			return fmt.Errorf("an answer is\n%s", r)
		}
	}
	return nil
}

func (c crowd) values(source string) []string {
	var values []string
	for _, r := range c.replies {
		if value, err := r.value(source); err == nil {
			values = append(values, value)
		}
	}
	return values
}

func (c crowd) slowest() time.Duration {
	slowest := time.Duration(0)
	for _, r := range c.replies {
		slowest = max(slowest, r.took)
	}
	return slowest
}

func (c crowd) expectCount(status, want string) error {
	counts := map[string]int{}
	for _, r := range c.replies {
		counts[strconv.Itoa(r.status)]++
	}
	if err := inRange("answers of status "+status, counts[status], want); err != nil {
		return fmt.Errorf("%w; there were %v", err, counts)
	}
	return nil
}

// lose writes a request and never reads the answer, like a client that dies.
func (s *story) lose(r request) error {
	req, err := http.NewRequestWithContext(s.t.Context(), r.method, r.urls[0],
		strings.NewReader(r.body))
	if err != nil {
		return err
	}
	req.Header = r.header
	conn, err := net.DialTimeout("tcp", req.URL.Host, 5*time.Second)
	if err != nil {
		return err
	}
	s.t.Cleanup(func() { conn.Close() }) // not earlier: the service would notice
	return req.Write(conn)
}
