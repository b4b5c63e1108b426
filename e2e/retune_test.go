package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// retune N DURATION BACKEND ADMIN FAST SLOW
//
// sets the backend's drain rate to FAST and back to SLOW, N times, at the api with that admin
// listener. The time from the PATCH to the next call is at most DURATION in the median, since a
// machine that stalls for a moment fails one of them. Each takes at most a second. The line must
// have jobs, and SLOW must be so slow that it starts none meanwhile.
func retuneCommand(s *story, args []string) error {
	if len(args) != 6 || s.backends[args[2]] == nil {
		return errors.New("usage: retune N DURATION BACKEND ADMIN FAST SLOW")
	}
	n, err1 := strconv.Atoi(args[0])
	limit, err2 := time.ParseDuration(args[1])
	if err := errors.Join(err1, err2); err != nil || n < 1 {
		return errors.Join(err, errors.New("retune: how often, and within what time?"))
	}
	b := s.backends[args[2]]
	tune := func(rate string) error {
		got, err := s.send(request{
			method: http.MethodPatch, urls: []string{args[3] + "/admin/v1/backends/" + args[2]},
			header: http.Header{"Content-Type": {"application/json"}},
			body:   fmt.Sprintf(`{"rate":%q}`, rate),
		}, 0)
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("the rate %s was answered\n%s", rate, got)
		}
		return err
	}
	var took []time.Duration
	for range n {
		if err := b.quiet(); err != nil {
			return err
		}
		sent := time.Now()
		if err := tune(args[4]); err != nil {
			return err
		}
		first, err := b.firstAfter(sent, time.Second)
		if err != nil {
			return fmt.Errorf("after the rate was set to %s: %w", args[4], err)
		}
		took = append(took, first.Sub(sent))
		if err := tune(args[5]); err != nil {
			return err
		}
	}
	slices.Sort(took)
	s.ts.Logf("from the PATCH to the next call it took %v", took)
	return between("from the PATCH to the next call it took, in the median,",
		took[len(took)/2], ".."+limit.String())
}

// quiet waits until no call has begun for 200 ms: all granted slots are used.
func (b *backend) quiet() error {
	const silence, most = 200 * time.Millisecond, 5 * time.Second
	for began := time.Now(); time.Since(began) < most; time.Sleep(pollEvery) {
		if _, err := b.firstAfter(time.Now().Add(-silence), 0); err != nil &&
			time.Since(began) > silence {
			return nil
		}
	}
	return fmt.Errorf("calls go on for %v", most)
}

// firstAfter waits for the first call that began after t.
func (b *backend) firstAfter(t time.Time, most time.Duration) (time.Time, error) {
	for began := time.Now(); ; time.Sleep(pollEvery / 4) {
		if calls := b.log(func(c call) bool { return c.begun.After(t) }); len(calls) > 0 {
			return calls[0].begun, nil
		}
		if time.Since(began) >= most {
			return time.Time{}, fmt.Errorf("there was no call within %v", most)
		}
	}
}
