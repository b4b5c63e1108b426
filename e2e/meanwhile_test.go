package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
)

// giveUp is how long a client of meanwhile tries to get one job accepted.
const giveUp = 20 * time.Second

// meanwhile is a crowd of clients that submits jobs while its story does other things.
type meanwhile struct {
	list   string
	cancel context.CancelFunc
	done   chan struct{} // closed when the last client has got its answer

	mu   sync.Mutex
	ids  []string // guarded by mu: of accepted jobs
	errs []error  // guarded by mu
	busy []reply  // guarded by mu: answers with a 503
}

// meanwhile LIST [-every DURATION] -d BODY API[,API...]
//
// submits a job each -every (50 ms) until meanwhile stop; {n} is its number. Each client is
// persistent: it has an Idempotency-Key, and asks the next api if there is no answer, or a 503.
//
// meanwhile stop expects that each job was accepted. LIST has their ids, $LIST their number, and
// $LIST_503 the number of 503s, except for those of an unavailable store.
func meanwhileCommand(s *story, args []string) error {
	if len(args) == 1 && args[0] == "stop" {
		return s.stopMeanwhile()
	}
	if len(args) == 0 || s.meanwhile != nil {
		return errors.New("usage: meanwhile LIST [-every DURATION] -d BODY API[,API...], " +
			"and one at a time")
	}
	flags := newFlags("meanwhile")
	every := flags.Duration("every", 50*time.Millisecond, "")
	body := flags.String("d", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() != 1 || *every <= 0 {
		return errors.New("meanwhile: which apis?")
	}
	apis := strings.Split(flags.Arg(0), ",")
	ctx, cancel := context.WithCancel(s.t.Context())
	m := &meanwhile{list: args[0], cancel: cancel, done: make(chan struct{})}
	s.meanwhile = m
	go func() {
		defer close(m.done)
		var clients sync.WaitGroup
		defer clients.Wait()
		ticker := time.NewTicker(*every)
		defer ticker.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				clients.Go(func() { m.note(s.persist(m, apis, *body, n)) })
			}
		}
	}()
	return nil
}

func (s *story) stopMeanwhile() error {
	m := s.meanwhile
	if m == nil {
		return errors.New("there is no meanwhile to stop")
	}
	s.meanwhile = nil
	m.cancel()
	<-m.done
	s.lists[m.list] = m.ids
	s.ts.Setenv(m.list, strconv.Itoa(len(m.ids)))
	s.ts.Setenv(m.list+"_503", strconv.Itoa(len(m.busy)))
	for _, answer := range m.busy {
		s.ts.Logf("meanwhile there was a 503: %s", answer)
	}
	return errors.Join(m.errs...)
}

func (m *meanwhile) note(id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.errs = append(m.errs, err)
		return
	}
	m.ids = append(m.ids, id)
}

// persist submits the n-th job until it is accepted.
func (s *story) persist(m *meanwhile, apis []string, body string, n int) (id string, err error) {
	header := http.Header{"Content-Type": {"application/json"},
		"Idempotency-Key": {fmt.Sprint("meanwhile-", n)}}
	for try, end := 0, time.Now().Add(giveUp); time.Now().Before(end); try++ {
		s.mu.Lock()
		url := s.public[apis[(n+try)%len(apis)]]
		s.mu.Unlock()
		var got reply
		got, err = s.send(request{method: http.MethodPost, urls: []string{url + "/v1/jobs"},
			header: header, body: body}, n)
		switch {
		case err == nil && got.status == http.StatusAccepted:
			return got.pointer("/job_id")
		case err == nil && got.status == http.StatusOK &&
			got.header.Get("Idempotent-Replayed") == "true": // finished by now
			return got.pointer("/job_id")
		case err == nil && got.status != http.StatusServiceUnavailable:
			return "", fmt.Errorf("job %d: %s", n, got)
		case err == nil:
			err = fmt.Errorf("%s", got)
			// An unavailable store means a machine short of CPU, or that the story stopped Redis.
			if code, _ := got.pointer("/code"); code != api.CodeStore {
				m.mu.Lock()
				m.busy = append(m.busy, got)
				m.mu.Unlock()
			}
		}
		time.Sleep(pollEvery)
	}
	return "", fmt.Errorf("job %d wasn't accepted within %v: %w", n, giveUp, err)
}
