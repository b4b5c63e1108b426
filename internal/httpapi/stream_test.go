package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
	"github.com/forebay/forebay/internal/web"
)

// patience is how long a test waits for an expected event.
const patience = 20 * time.Second

// stream is an open stream of a job's states, as a client reads it.
type stream struct {
	*http.Response
	w      *testforebay.World
	blocks chan block // closed at the stream's end
}

// block is the text between two empty lines: an event, a retry or a comment.
type block struct {
	id, event, data, retry string
	comment                bool
}

// stream opens one, which the server must grant.
func (w *world) stream(id string, fields ...[2]string) *stream {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), "GET", w.URL+"/v1/jobs/"+id, nil)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for _, f := range fields {
		r.Header.Set(f[0], f[1])
	}
	a, err := w.Client.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" ||
		a.Header.Get("Cache-Control") != "no-store" ||
		a.Header.Get("X-Accel-Buffering") != "no" || a.ContentLength >= 0 {
		w.Fatalf("no stream: %s %v", a.Status, a.Header)
	}
	w.CheckContract(r, a, nil) // of its body there is no schema
	s := &stream{Response: a, w: w.World, blocks: make(chan block, 100)}
	go s.read()
	w.Cleanup(func() { a.Body.Close() })
	if b := s.next(); b.retry != "3000" {
		w.Fatalf("a stream begins with %+v", b)
	}
	return s
}

func (s *stream) read() {
	defer close(s.blocks)
	var b block
	for lines := bufio.NewScanner(s.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			s.blocks <- b
			b = block{}
		case name == "id":
			b.id = value
		case name == "event":
			b.event = value
		case name == "data":
			b.data += value
		case name == "retry":
			b.retry = value
		case name == "":
			b.comment = true
		}
	}
}

func (s *stream) next() block {
	s.w.Helper()
	select {
	case b, ok := <-s.blocks:
		if !ok {
			s.w.Fatal("the stream has ended")
		}
		return b
	case <-time.After(patience):
		s.w.Fatal("the stream says nothing")
	}
	return block{}
}

// wants takes the next event, which must have that status.
func (s *stream) wants(event, status string) (job api.Job, version int64) {
	s.w.Helper()
	b := s.next()
	err := json.Unmarshal([]byte(b.data), &job)
	if err != nil || b.event != event || job.Status != status || job.Done != (event == "done") {
		s.w.Fatalf("%+v, want %s with %s", b, event, status)
	}
	if version, err = strconv.ParseInt(b.id, 10, 64); err != nil {
		s.w.Fatalf("id: %v", err)
	}
	return job, version
}

// over wants the stream's end, after nothing but a hint on when to come back where hint says so.
func (s *stream) over(hint bool) {
	s.w.Helper()
	if hint {
		ms, err := strconv.Atoi(s.next().retry)
		if err != nil || ms < 1000 || ms > 5000 {
			s.w.Errorf("retry: %d, %v", ms, err)
		}
	}
	select {
	case b, ok := <-s.blocks:
		if ok {
			s.w.Errorf("after what should be the end: %+v", b)
		}
	case <-time.After(patience):
		s.w.Error("the stream doesn't end")
	}
}

func TestAStreamTellsEachStateUntilTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	s := w.stream(id, key(keyA))
	job, version := s.wants("status", api.Queued)
	if job.ID != id || job.Queue == nil || job.Queue.Position != 1 || job.Links.Cancel == "" ||
		version != 0 {
		t.Errorf("version %d: %+v", version, job)
	}
	steps := []struct {
		event, status string
		do            func()
	}{
		{"status", api.Running, func() {}}, // by start, which each step begins with
		{"status", api.Queued, func() {}},
		{"status", api.Running, func() {}},
		{"done", api.Succeeded, func() {}},
	}
	ticket := w.Start(id)
	steps[1].do = func() {
		w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Delayed,
			Failure: jobs.Failure{Code: jobs.CodeBackendTimeout, Detail: "No answer."}})
	}
	steps[2].do = func() { ticket = w.Start(id) }
	steps[3].do = func() {
		w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded,
			Result: jobs.Meta{Status: 200, Size: 1}, Body: []byte("x")})
	}
	for _, step := range steps {
		step.do()
		job, now := s.wantsSoon(step.event, step.status)
		if now <= version {
			t.Errorf("%s: version %d after %d", step.status, now, version)
		}
		if version = now; job.Done && job.Links.Result == "" {
			t.Errorf("%+v", job)
		}
	}
	s.over(false)
	w.Eventually("nobody waits",
		func() bool { return w.Server.HeldAnswers(httpapi.HeldStream) == 0 })
}

// wantsSoon is wants, after further events of the status before: a queued job may have several.
func (s *stream) wantsSoon(event, status string) (api.Job, int64) {
	s.w.Helper()
	for {
		b := s.next()
		var job api.Job
		if err := json.Unmarshal([]byte(b.data), &job); err != nil {
			s.w.Fatalf("%+v: %v", b, err)
		}
		if job.Status != status && job.Status == api.Queued {
			continue
		}
		version, err := strconv.ParseInt(b.id, 10, 64)
		if err != nil || b.event != event || job.Status != status {
			s.w.Fatalf("%+v, want %s with %s", b, event, status)
		}
		return job, version
	}
}

func TestAStreamOfADoneJobIsItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)), 200)
	s := w.stream(id, key(keyA))
	s.wants("done", api.Canceled)
	s.over(false)
}

// A client that reconnects gets the states that it hasn't seen, and none twice. If it has seen all,
// it gets 204 and doesn't reconnect.
func TestAStreamGoesOnWhereItBrokeOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	first := w.stream(id, key(keyA))
	_, waiting := first.wants("status", api.Queued)
	first.Body.Close()
	last := func(version int64) [2]string {
		return field("Last-Event-ID", strconv.FormatInt(version, 10))
	}

	second := w.stream(id, key(keyA), last(waiting))
	ticket := w.Start(id)
	_, running := second.wantsSoon("status", api.Running)
	second.Body.Close()

	third := w.stream(id, key(keyA), last(waiting)) // the answer to running got lost
	third.wants("status", api.Running)
	third.Body.Close()

	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded, Result: jobs.Meta{Status: 200},
		Body: nil})
	fourth := w.stream(id, key(keyA), last(running))
	_, ended := fourth.wants("done", api.Succeeded)
	fourth.over(false)

	for _, seen := range []int64{ended, ended + 7} {
		a := w.Want(w.Get("/v1/jobs/"+id, key(keyA), field("Accept", "text/event-stream"),
			last(seen)), http.StatusNoContent)
		if len(a.Text) != 0 || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("204: %v", a.Header)
		}
	}
	for _, strange := range []string{"", "x", "-1", "99999999999999999999"} {
		s := w.stream(id, key(keyA), field("Last-Event-ID", strange))
		s.wants("done", api.Succeeded)
		s.over(false)
	}
}

func TestOnlyThoseWhoAskForAStreamGetOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	for _, accept := range []string{"*/*", "application/json", "text/html"} {
		if a := w.Want(w.Get("/v1/jobs/"+id, key(keyA), field("Accept", accept)),
			200); w.Job(a).ID != id || !strings.Contains(a.Header.Get("Vary"), "Accept") {
			t.Errorf("%s: %v", accept, a.Header)
		}
	}
	wish := field("Accept", "text/event-stream")
	w.Problem(w.Get("/v1/jobs/"+id, key(keyB), wish), http.StatusNotFound, api.CodeUnknownJob)
	w.Problem(w.Get("/v1/jobs/"+id, key("wrong"), wish), http.StatusUnauthorized,
		api.CodeInvalidCredentials)
	a := w.Want(w.Call("HEAD", w.URL+"/v1/jobs/"+id, "", key(keyA), wish), 200)
	if a.Header.Get("Content-Type") != "text/event-stream" || len(a.Text) != 0 {
		t.Errorf("HEAD: %v", a.Header)
	}
}

// A silent stream is kept alive, and ends after its time with a hint when to reconnect.
func TestASilentStreamShowsThatItIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Pause()
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Server.SetStreams(20*time.Millisecond, time.Hour)
	s := w.stream(id, key(keyA))
	s.wants("status", api.Queued)
	for range 3 {
		if b := s.next(); b != (block{comment: true}) {
			t.Fatalf("%+v, want a comment", b)
		}
	}
	s.Body.Close()
	w.Eventually("nobody waits",
		func() bool { return w.Server.HeldAnswers(httpapi.HeldStream) == 0 })
	w.Server.SetStreams(time.Hour, 20*time.Millisecond)
	s = w.stream(id, key(keyA))
	s.wants("status", api.Queued)
	s.over(true)
}

// The listener's timeouts are for requests and answers, not for held answers.
func TestTheListenersTimeoutsDontEndWhatIsHeldBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	server := web.NewHTTPServer(w.Server.Public(), w.Server.Web.Log)
	server.ReadTimeout, server.WriteTimeout = time.Second, 1500*time.Millisecond
	w.URL = listen(t, server)
	w.Server.SetStreams(100*time.Millisecond, httpapi.StreamLife)
	s := w.stream(id, key(keyA))
	s.wants("status", api.Queued)
	for range 25 { // 2.5 s
		s.next()
	}
	w.Start(id)
	for b := s.next(); b.event == "" || !strings.Contains(b.data, api.Running); b = s.next() {
	}
	s.Body.Close()

	server = web.NewHTTPServer(w.Server.Public(), w.Server.Web.Log)
	server.ReadTimeout = time.Second
	w.URL = listen(t, server)
	began := time.Now()
	a := w.Want(w.Get("/v1/jobs/"+id, key(keyA), field("Prefer", "wait=3")), 200)
	if took := time.Since(began); took < 3*time.Second || w.Job(a).Status != api.Running {
		t.Errorf("after %v: %s", took, a.Text)
	}
}

func TestShuttingDownEndsStreamsWithAHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := web.NewHTTPServer(w.Server.Public(), w.Server.Web.Log)
	w.URL = listen(t, server)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	var streams []*stream
	for range 5 {
		s := w.stream(id, key(keyA))
		s.wants("status", api.Queued)
		streams = append(streams, s)
	}
	w.Server.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("the shutdown waits for streams: %v", err)
	}
	hints := map[string]bool{}
	for _, s := range streams {
		b := s.next()
		hints[b.retry] = true
		s.over(false)
	}
	if len(hints) < 2 || hints[""] {
		t.Errorf("all come back together: %v", hints)
	}
}
