package httpapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func TestAJobShowsItsWholeLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	ticket := w.Start(id)
	a := w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200)
	if job := w.Job(a); job.Status != api.Running || job.Done || job.Queue != nil ||
		job.Attempts != 1 || job.StartedAt == nil || a.Header.Get("Retry-After") != "1" {
		t.Errorf("running: %s", a.Text)
	}
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Delayed, Delay: time.Hour,
		Failure: jobs.Failure{Code: jobs.CodeBackendTimeout, Detail: "No answer."}})
	a = w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200)
	job := w.Job(a)
	if job.Status != api.Queued || job.Queue.Position != 0 || job.Queue.WaitingOn != "backoff" ||
		a.Header.Get("Retry-After") != "30" {
		t.Errorf("delayed: %s", a.Text)
	}
	// Case C70: the time of the next attempt is right.
	if at := job.Queue.NextAttemptAt; at == nil || time.Until(at.Time) < 59*time.Minute ||
		time.Until(at.Time) > time.Hour {
		t.Errorf("next attempt at %v", at)
	}

	id = w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Succeed(id, 201, "text/csv", []byte("a,b\n"))
	a = w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200)
	job = w.Job(a)
	if job.Status != api.Succeeded || !job.Done || job.Error != nil || job.FinishedAt == nil ||
		job.ExpiresAt == nil ||
		job.Links.Result != "/v1/jobs/"+id+"/result" || job.Links.Cancel != "" ||
		a.Header.Get("Retry-After") != "" {
		t.Errorf("succeeded: %s", a.Text)
	}
	result := w.Want(w.Get(job.Links.Result, key(keyA)), 201)
	if string(result.Text) != "a,b\n" || result.Header.Get("Content-Type") != "text/csv" ||
		result.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("result: %q %v", result.Text, result.Header)
	}
}

// Case C95.
func TestResultsAreTheBackendsBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, r := range map[string]struct {
		status      int
		contentType string
		body        string
	}{
		"PNG":             {200, "image/png", "\x89PNG\r\n\x1a\n\x00\x00"},
		"gzip":            {200, "application/gzip", "\x1f\x8b\x08\x00\xff"},
		"invalid UTF-8":   {200, "text/plain; charset=utf-8", "\xff\xfe"},
		"invalid JSON":    {200, "application/json", `{"a":`},
		"no content":      {204, "", ""},
		"no content type": {200, "", "<html>"},
		"empty":           {200, "text/plain", ""},
		"HTML":            {200, "text/html", "<script>alert(1)</script>"},
	} {
		t.Run(name, func(t *testing.T) {
			id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
			w.Succeed(id, r.status, r.contentType, []byte(r.body))
			a := w.Want(w.Get("/v1/jobs/"+id+"/result", key(keyA)), r.status)
			if string(a.Text) != r.body || a.Header.Get("Content-Type") != r.contentType {
				t.Errorf("%q of type %q", a.Text, a.Header.Get("Content-Type"))
			}
			head := w.Want(w.Call("HEAD", w.URL+"/v1/jobs/"+id+"/result", "", key(keyA)), r.status)
			if head.Header.Get("Content-Length") != a.Header.Get("Content-Length") ||
				len(head.Text) != 0 || head.Header.Get("Content-Type") != r.contentType {
				t.Errorf("HEAD: %v", head.Header)
			}
		})
	}
}

func TestAJobWithoutResultSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	result := func(id string) answer {
		return w.Get("/v1/jobs/"+id+"/result", key(keyA))
	}

	waiting := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	p := w.Problem(result(waiting), http.StatusConflict, api.CodeNotFinished)
	if p.RetryAfter < 1 {
		t.Errorf("retry_after = %d", p.RetryAfter)
	}
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+waiting, "", key(keyA)), 200)
	w.Problem(result(waiting), http.StatusGone, api.CodeCanceled)

	gone := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Succeed(gone, 200, "text/plain", []byte("x"))
	if err := w.Redis.Del(context.Background(), jobs.ResultKey(w.Backend, gone)).Err(); err != nil {
		t.Fatal(err)
	}
	w.Problem(result(gone), http.StatusGone, api.CodeResultGone)

	for _, body := range []string{`{"error":"no such month"}`, "\xff\x00"} {
		failed := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
		w.Settle(leaky.Settlement{Ticket: w.Start(failed), To: jobs.Failed,
			Failure: jobs.Failure{Code: jobs.CodeBackendStatus,
				Detail: "The backend answered 422."},
			Result: jobs.Meta{Status: 422, ContentType: "application/json", Size: int64(len(body))},
			Body:   []byte(body)})
		job := w.Job(w.Get("/v1/jobs/"+failed, key(keyA)))
		if job.Status != api.Failed || job.Error == nil ||
			job.Error.Code != jobs.CodeBackendStatus ||
			job.Error.Detail != "The backend answered 422." {
			t.Errorf("job = %+v", job)
		}
		a := result(failed)
		p = w.Problem(a, http.StatusFailedDependency, jobs.CodeBackendStatus)
		got := p.BackendAnswer
		if got == nil || got.Status != 422 || got.Body+string(got.BodyBase64) != body {
			t.Errorf("result = %s", a.Text)
		}
		var raw struct {
			Answer struct {
				Base64 string `json:"body_base64"`
			} `json:"backend_answer"`
		}
		if err := json.Unmarshal(a.Text, &raw); err != nil {
			t.Fatal(err)
		}
		if bytes, err := base64.StdEncoding.DecodeString(raw.Answer.Base64); err != nil ||
			got.Body == "" && string(bytes) != body {
			t.Errorf("base64 = %q", raw.Answer.Base64)
		}
	}
}

// Case C98.
func TestAnotherClientsJobIsAnsweredLikeNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	unknown := jobs.NewID(w.Backend)
	want := w.Problem(w.Get("/v1/jobs/"+unknown, key(keyA)), http.StatusNotFound,
		api.CodeUnknownJob)
	for _, caller := range [][2]string{key(keyB), from("192.0.2.7")} {
		for _, call := range []string{"GET /v1/jobs/%s", "GET /v1/jobs/%s/result",
			"DELETE /v1/jobs/%s"} {
			method, path, _ := strings.Cut(call, " ")
			a := w.Call(method, w.URL+fmt.Sprintf(path, id), "", caller)
			got := w.Problem(a, http.StatusNotFound, api.CodeUnknownJob)
			if got.RequestID = want.RequestID; got.Error() != want.Error() ||
				got.Title != want.Title {
				t.Errorf("%s tells that the job is there: %s", call, a.Text)
			}
		}
	}
	for _, wrong := range []string{"x", "nosuchbackend-" + id[len(w.Backend)+1:],
		strings.ToUpper(id), id + "x", w.Backend, w.Backend + "-", "%00", "%ff"} {
		w.Problem(w.Get("/v1/jobs/"+wrong, key(keyA)), http.StatusNotFound, api.CodeUnknownJob)
	}
	if st := w.Job(w.Get("/v1/jobs/"+id, key(keyA))).Status; st != api.Queued {
		t.Errorf("the job is %s after others tried to cancel it", st)
	}
}

func TestCancelSaysWhatItDid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cancel := func(id string) answer {
		return w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA))
	}

	waiting := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	for range 2 { // again is no error
		if job := w.Job(w.Want(cancel(waiting), http.StatusOK)); job.Status != api.Canceled ||
			!job.Done {
			t.Errorf("job = %+v", job)
		}
	}
	running := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	ticket := w.Start(running)
	if a := w.Want(cancel(running), http.StatusAccepted); a.Header.Get("Retry-After") == "" ||
		w.Job(a).Status != api.Running {
		t.Errorf("canceling: %s", a.Text)
	}
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Canceled})
	w.Want(cancel(running), http.StatusOK)

	done := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Succeed(done, 200, "text/plain", nil)
	w.Problem(cancel(done), http.StatusConflict, api.CodeFinished)
	w.Problem(cancel(jobs.NewID(w.Backend)), http.StatusNotFound, api.CodeUnknownJob)
}

func TestAnUnchangedJobIsNotSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Rate = mustRate(t, "1/h") })
	first := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	second := w.Job(w.Submit(w.Plain, `2`, key(keyA))).ID
	look := func(id string, fields ...[2]string) answer {
		return w.Get("/v1/jobs/"+id, append(fields, key(keyA))...)
	}

	etag := w.Want(look(second), 200).Header.Get("ETag")
	same := w.Want(look(second, field("If-None-Match", `"x", `+etag)), http.StatusNotModified)
	if same.Header.Get("ETag") != etag || same.Header.Get("Cache-Control") != "private, no-cache" ||
		same.Header.Get("Retry-After") != "30" || len(same.Text) != 0 {
		t.Errorf("304: %v", same.Header)
	}
	w.Want(look(second, field("If-None-Match", strings.TrimPrefix(etag, "W/"))),
		http.StatusNotModified)
	w.Want(look(second, field("If-None-Match", "*")), http.StatusNotModified)
	w.Want(look(second, field("If-None-Match", `"x"`)), 200)

	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+first, "", key(keyA)), 200)
	moved := w.Want(look(second, field("If-None-Match", etag)), 200) // it is next now
	if w.Job(moved).Queue.Position != 1 {
		t.Errorf("moved: %s", moved.Text)
	}
	w.Start(second)
	started := w.Want(look(second, field("If-None-Match", moved.Header.Get("ETag"))), 200)
	w.Want(look(second, field("If-None-Match", started.Header.Get("ETag"))), http.StatusNotModified)
}

func TestAStatusIsHeldBackUntilTheJobIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	answers := make(chan answer)
	go func() {
		answers <- w.Get("/v1/jobs/"+id, key(keyA), field("Prefer", "respond-async, wait=99"))
	}()
	w.Eventually("the answer is held back",
		func() bool { return w.Server.HeldAnswers(httpapi.HeldWait) == 1 })
	w.Succeed(id, 200, "text/plain", []byte("x"))
	select {
	case a := <-answers:
		if job := w.Job(w.Want(a, 200)); job.Status != api.Succeeded ||
			a.Header.Get("Preference-Applied") != "wait=30" {
			t.Errorf("%s %v", a.Text, a.Header)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no answer after the job's end")
	}
	w.Eventually("nobody waits", func() bool { return w.Server.HeldAnswers(httpapi.HeldWait) == 0 })
}

func TestAPostIsHeldBackUntilItsJobIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	answers := make(chan answer)
	go func() {
		answers <- w.Submit(w.Plain, `1`, key(keyA), idempotent("k"), field("Prefer", "wait=20"))
	}()
	w.Eventually("the answer is held back",
		func() bool { return w.Server.HeldAnswers(httpapi.HeldWait) == 1 })
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA), idempotent("k"))).ID
	w.Succeed(id, 201, "text/plain", []byte("\xffx"))
	a := w.Want(<-answers, 200)
	if string(a.Text) != "\xffx" || a.Header.Get("Content-Type") != "text/plain" ||
		a.Header.Get("Content-Location") != "/v1/jobs/"+id+"/result" {
		t.Errorf("%q %v, want the result itself", a.Text, a.Header)
	}
	if a.Header.Get("Location") != "/v1/jobs/"+id ||
		a.Header.Get("Preference-Applied") != "wait=20" ||
		a.Header.Get("Forebay-Decision") != "accepted" {
		t.Errorf("%v", a.Header)
	}
}

// A client that waited learns of a job that ended otherwise from the job itself.
func TestAPostIsHeldBackUntilItsJobHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA), idempotent("k"))).ID
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)), 200)
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k"), field("Prefer", "wait=20")), 200)
	if job := w.Job(a); job.ID != id || job.Status != api.Canceled ||
		a.Header.Get("Content-Location") != "/v1/jobs/"+id {
		t.Errorf("%s %v", a.Text, a.Header)
	}
}

func TestAWaitEndsWithTheJobWhereItStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Pause()
	began := time.Now()
	a := w.Want(w.Submit(w.Plain, `1`, key(keyA), field("Prefer", "wait=1")), http.StatusAccepted)
	if took := time.Since(began); took < time.Second || took > 5*time.Second ||
		a.Header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("answered after %v: %v", took, a.Header)
	}
	if a.Header.Get("Retry-After") != "30" { // paused: there is no telling
		t.Errorf("Retry-After: %s", a.Header.Get("Retry-After"))
	}
}

func TestShuttingDownStepByStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	answers := make(chan answer)
	go func() {
		answers <- w.Get("/v1/jobs/"+id, key(keyA), field("Prefer", "wait=30"))
	}()
	w.Eventually("the answer is held back",
		func() bool { return w.Server.HeldAnswers(httpapi.HeldWait) == 1 })
	if a := w.Want(w.Get("/readyz"), 200); a.Close {
		t.Error("a connection is closed for no reason")
	}

	w.Server.Leave()
	w.Problem(w.Get("/readyz"), http.StatusServiceUnavailable, api.CodeNotReady)
	w.Problem(w.Call("GET", w.Admin+"/readyz", ""), http.StatusServiceUnavailable,
		api.CodeShuttingDown)
	if a := w.Want(w.Submit(w.Plain, `2`, key(keyA)), http.StatusAccepted); !a.Close {
		t.Error("the client isn't told to connect anew")
	}

	w.Server.Refuse()
	a := w.Submit(w.Plain, `3`, key(keyA))
	w.Problem(a, http.StatusServiceUnavailable, api.CodeShuttingDown)
	if a.Header.Get("Forebay-Decision") != `rejected;reason="shutting_down"` ||
		a.Header.Get("Retry-After") == "" {
		t.Errorf("%v", a.Header)
	}
	w.Want(w.Get("/livez"), 200)
	w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200)

	select {
	case <-answers:
		t.Error("the wait ended before it had to")
	default:
	}
	w.Server.Drain()
	w.Server.Drain()
	select {
	case a := <-answers:
		w.Want(a, 200)
	case <-time.After(10 * time.Second):
		t.Fatal("the wait outlives the shutdown")
	}
}
