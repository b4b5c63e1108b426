package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// cancel-race N DURATION BACKEND API BODY
//
// submits N jobs and cancels each at a random moment of that time after its 202. Then it checks
// that every answer to a cancel was true, and that no job left its final state.
func cancelRaceCommand(s *story, args []string) error {
	const usage = "usage: cancel-race N DURATION BACKEND API BODY"
	if len(args) != 5 || s.backends[args[2]] == nil {
		return errors.New(usage)
	}
	n, err1 := strconv.Atoi(args[0])
	within, err2 := time.ParseDuration(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	b, base, body := s.backends[args[2]], args[3], args[4]
	submit := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"race-{n}"}}

	canceled, err := inParallel(n, 16, func(i int) (canceledJob, error) {
		accepted, err := s.insist(request{method: http.MethodPost,
			urls: []string{base + "/v1/jobs"}, header: submit, body: body}, i)
		if err != nil {
			return canceledJob{}, err
		}
		if accepted.status != http.StatusAccepted && accepted.status != http.StatusOK {
			return canceledJob{}, fmt.Errorf("not accepted: %s", accepted)
		}
		id, err := accepted.pointer("/job_id")
		if err != nil {
			return canceledJob{}, err
		}
		time.Sleep(rand.N(within)) // the race of this story
		cancel := request{method: http.MethodDelete, urls: []string{base + "/v1/jobs/" + id}}
		got, err := s.send(cancel, 0)
		if err == nil && got.status == http.StatusServiceUnavailable {
			// The first request may have been applied, so the answer to the second means less.
			_, err = s.insist(cancel, 0)
			got.status = http.StatusAccepted
		}
		return canceledJob{id: id, status: got.status}, err
	})
	if err != nil {
		return err
	}
	finals := map[string]reply{}
	for _, job := range canceled {
		if finals[job.id], err = s.final(base, job.id); err != nil {
			return err
		}
	}
	answers, outcomes := map[int]int{}, map[string]int{}
	for _, job := range canceled {
		status, err := s.judge(b, base, job, finals[job.id])
		if err != nil {
			return fmt.Errorf("job %s, cancel answered %d: %w", job.id, job.status, err)
		}
		answers[job.status]++
		outcomes[status]++
	}
	s.ts.Logf("cancels answered %v; jobs ended %v", answers, outcomes)
	if outcomes["canceled"] == 0 || outcomes["succeeded"] == 0 {
		return fmt.Errorf("there was no race: jobs ended %v", outcomes)
	}
	return nil
}

// canceledJob is a job and the status of the answer to its DELETE.
type canceledJob struct {
	id     string
	status int
}

// insist repeats a request while the answer is 503: on a machine that is short of CPU, Redis may
// seem unavailable.
func (s *story) insist(r request, n int) (reply, error) {
	for deadline := time.Now().Add(finalTime); ; {
		got, err := s.send(r, n)
		if err != nil || got.status != http.StatusServiceUnavailable {
			return got, err
		}
		if time.Now().After(deadline) {
			return reply{}, fmt.Errorf("still %s", got)
		}
	}
}

// finalTime bounds the wait for one job's end.
const finalTime = 20 * time.Second

// final waits for a job's final state.
func (s *story) final(base, id string) (reply, error) {
	for deadline := time.Now().Add(finalTime); ; {
		got,
			err := s.insist(request{method: http.MethodGet, urls: []string{base + "/v1/jobs/" + id},
			header: http.Header{"Prefer": {"wait=5"}}}, 0)
		if err != nil {
			return reply{}, err
		}
		done, err := got.pointer("/done")
		if err != nil || got.status != http.StatusOK {
			return reply{}, fmt.Errorf("its status: %s", got)
		}
		if done == "true" {
			return got, nil
		}
		if time.Now().After(deadline) {
			return reply{}, fmt.Errorf("job %s isn't done: %s", id, got)
		}
	}
}

// judge checks one job's end against the answer to its cancel and the calls of the backend.
func (s *story) judge(b *backend, base string, job canceledJob, first reply) (string, error) {
	again, err := s.final(base, job.id)
	if err != nil {
		return "", err
	}
	if string(again.body) != string(first.body) {
		return "", fmt.Errorf("its final state changed from %s to %s", first.body, again.body)
	}
	status, err := again.pointer("/status")
	if err != nil {
		return "", err
	}
	result, err := s.insist(request{method: http.MethodGet,
		urls: []string{base + "/v1/jobs/" + job.id + "/result"}}, 0)
	if err != nil {
		return "", err
	}
	calls := b.log(func(c call) bool { return c.job() == job.id })
	switch {
	case status == "canceled" && result.status != http.StatusGone:
		return "", fmt.Errorf("canceled, and its result answers %s", result)
	case status == "succeeded" && result.status != http.StatusOK:
		return "", fmt.Errorf("succeeded, and its result answers %s", result)
	case status != "canceled" && status != "succeeded":
		return "", fmt.Errorf("it is %s", status)
	case len(calls) > 1:
		return "", fmt.Errorf("%d calls", len(calls))
	case status == "succeeded" && (len(calls) == 0 || calls[0].aborted):
		return "", errors.New("succeeded without a call that ended")
	}
	switch job.status {
	case http.StatusOK: // it has not reached the backend, and never will
		if status != "canceled" || len(calls) > 0 {
			return "", fmt.Errorf("it is %s after %d calls", status, len(calls))
		}
	case http.StatusAccepted: // aborting, unless the answer was there first
	case http.StatusConflict:
		if status != "succeeded" {
			return "", fmt.Errorf("it is %s", status)
		}
	default:
		return "", errors.New("that is no answer to a cancel")
	}
	return status, nil
}
