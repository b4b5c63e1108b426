package httpapi

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
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func TestAJobShowsItsWholeLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	ticket := w.start(id)
	a := w.want(w.get("/v1/jobs/"+id, key(keyA)), 200)
	if job := w.job(a); job.Status != api.Running || job.Done || job.Queue != nil || job.Attempts != 1 || job.StartedAt == nil || a.Header.Get("Retry-After") != "1" {
		t.Errorf("running: %s", a.body)
	}
	w.settle(leaky.Settlement{Ticket: ticket, To: jobs.Delayed, Delay: time.Hour, Failure: jobs.Failure{Code: jobs.CodeBackendTimeout, Detail: "No answer."}})
	a = w.want(w.get("/v1/jobs/"+id, key(keyA)), 200)
	job := w.job(a)
	if job.Status != api.Queued || job.Queue.Position != 0 || job.Queue.WaitingOn != "backoff" || a.Header.Get("Retry-After") != "30" {
		t.Errorf("delayed: %s", a.body)
	}
	// Case C70: the next try's time is told truly.
	if at := job.Queue.NextAttemptAt; at == nil || time.Until(at.Time) < 59*time.Minute || time.Until(at.Time) > time.Hour {
		t.Errorf("next attempt at %v", at)
	}

	id = w.job(w.submit(w.plain, `1`, key(keyA))).ID
	w.succeed(id, 201, "text/csv", []byte("a,b\n"))
	a = w.want(w.get("/v1/jobs/"+id, key(keyA)), 200)
	job = w.job(a)
	if job.Status != api.Succeeded || !job.Done || job.Error != nil || job.FinishedAt == nil || job.ExpiresAt == nil ||
		job.Links.Result != "/v1/jobs/"+id+"/result" || job.Links.Cancel != "" || a.Header.Get("Retry-After") != "" {
		t.Errorf("succeeded: %s", a.body)
	}
	result := w.want(w.get(job.Links.Result, key(keyA)), 201)
	if string(result.body) != "a,b\n" || result.Header.Get("Content-Type") != "text/csv" || result.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("result: %q %v", result.body, result.Header)
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
			id := w.job(w.submit(w.plain, `1`, key(keyA))).ID
			w.succeed(id, r.status, r.contentType, []byte(r.body))
			a := w.want(w.get("/v1/jobs/"+id+"/result", key(keyA)), r.status)
			if string(a.body) != r.body || a.Header.Get("Content-Type") != r.contentType {
				t.Errorf("%q of type %q", a.body, a.Header.Get("Content-Type"))
			}
			head := w.want(w.call("HEAD", w.url+"/v1/jobs/"+id+"/result", "", key(keyA)), r.status)
			if head.Header.Get("Content-Length") != a.Header.Get("Content-Length") || len(head.body) != 0 || head.Header.Get("Content-Type") != r.contentType {
				t.Errorf("HEAD: %v", head.Header)
			}
		})
	}
}

func TestAJobWithoutResultSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	result := func(id string) answer { return w.get("/v1/jobs/"+id+"/result", key(keyA)) }

	waiting := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	p := w.problem(result(waiting), http.StatusConflict, api.CodeNotFinished)
	if p.RetryAfter < 1 {
		t.Errorf("retry_after = %d", p.RetryAfter)
	}
	w.want(w.call("DELETE", w.url+"/v1/jobs/"+waiting, "", key(keyA)), 200)
	w.problem(result(waiting), http.StatusGone, api.CodeCanceled)

	gone := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	w.succeed(gone, 200, "text/plain", []byte("x"))
	if err := w.rdb.Del(context.Background(), jobs.ResultKey(w.backend, gone)).Err(); err != nil {
		t.Fatal(err)
	}
	w.problem(result(gone), http.StatusGone, api.CodeResultGone)

	for _, body := range []string{`{"error":"no such month"}`, "\xff\x00"} {
		failed := w.job(w.submit(w.plain, `1`, key(keyA))).ID
		w.settle(leaky.Settlement{Ticket: w.start(failed), To: jobs.Failed, Failure: jobs.Failure{Code: jobs.CodeBackendStatus, Detail: "The backend answered 422."},
			Result: jobs.Meta{Status: 422, ContentType: "application/json", Size: int64(len(body))}, Body: []byte(body)})
		job := w.job(w.get("/v1/jobs/"+failed, key(keyA)))
		if job.Status != api.Failed || job.Error == nil || job.Error.Code != jobs.CodeBackendStatus || job.Error.Detail != "The backend answered 422." {
			t.Errorf("job = %+v", job)
		}
		a := result(failed)
		p = w.problem(a, http.StatusFailedDependency, jobs.CodeBackendStatus)
		got := p.BackendAnswer
		if got == nil || got.Status != 422 || got.Body+string(got.BodyBase64) != body {
			t.Errorf("result = %s", a.body)
		}
		var raw struct {
			Answer struct {
				Base64 string `json:"body_base64"`
			} `json:"backend_answer"`
		}
		if err := json.Unmarshal(a.body, &raw); err != nil {
			t.Fatal(err)
		}
		if bytes, err := base64.StdEncoding.DecodeString(raw.Answer.Base64); err != nil || got.Body == "" && string(bytes) != body {
			t.Errorf("base64 = %q", raw.Answer.Base64)
		}
	}
}

// Case C98.
func TestAnotherClientsJobIsAnsweredLikeNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	unknown := jobs.NewID(w.backend)
	want := w.problem(w.get("/v1/jobs/"+unknown, key(keyA)), http.StatusNotFound, api.CodeUnknownJob)
	for _, caller := range [][2]string{key(keyB), from("192.0.2.7")} {
		for _, call := range []string{"GET /v1/jobs/%s", "GET /v1/jobs/%s/result", "DELETE /v1/jobs/%s"} {
			method, path, _ := strings.Cut(call, " ")
			a := w.call(method, w.url+fmt.Sprintf(path, id), "", caller)
			got := w.problem(a, http.StatusNotFound, api.CodeUnknownJob)
			if got.RequestID = want.RequestID; got.Error() != want.Error() || got.Title != want.Title {
				t.Errorf("%s tells that the job is there: %s", call, a.body)
			}
		}
	}
	for _, wrong := range []string{"x", "nosuchbackend-" + id[len(w.backend)+1:], strings.ToUpper(id), id + "x", w.backend, w.backend + "-", "%00", "%ff"} {
		w.problem(w.get("/v1/jobs/"+wrong, key(keyA)), http.StatusNotFound, api.CodeUnknownJob)
	}
	if st := w.job(w.get("/v1/jobs/"+id, key(keyA))).Status; st != api.Queued {
		t.Errorf("the job is %s after others tried to cancel it", st)
	}
}

func TestCancelSaysWhatItDid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cancel := func(id string) answer { return w.call("DELETE", w.url+"/v1/jobs/"+id, "", key(keyA)) }

	waiting := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	for range 2 { // again is no error
		if job := w.job(w.want(cancel(waiting), http.StatusOK)); job.Status != api.Canceled || !job.Done {
			t.Errorf("job = %+v", job)
		}
	}
	running := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	ticket := w.start(running)
	if a := w.want(cancel(running), http.StatusAccepted); a.Header.Get("Retry-After") == "" || w.job(a).Status != api.Running {
		t.Errorf("canceling: %s", a.body)
	}
	w.settle(leaky.Settlement{Ticket: ticket, To: jobs.Canceled})
	w.want(cancel(running), http.StatusOK)

	done := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	w.succeed(done, 200, "text/plain", nil)
	w.problem(cancel(done), http.StatusConflict, api.CodeFinished)
	w.problem(cancel(jobs.NewID(w.backend)), http.StatusNotFound, api.CodeUnknownJob)
}

func TestAnUnchangedJobIsNotSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.line.Rate = mustRate(t, "1/h") })
	first := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	second := w.job(w.submit(w.plain, `2`, key(keyA))).ID
	look := func(id string, fields ...[2]string) answer {
		return w.get("/v1/jobs/"+id, append(fields, key(keyA))...)
	}

	etag := w.want(look(second), 200).Header.Get("ETag")
	same := w.want(look(second, field("If-None-Match", `"x", `+etag)), http.StatusNotModified)
	if same.Header.Get("ETag") != etag || same.Header.Get("Cache-Control") != "private, no-cache" || same.Header.Get("Retry-After") != "30" || len(same.body) != 0 {
		t.Errorf("304: %v", same.Header)
	}
	w.want(look(second, field("If-None-Match", strings.TrimPrefix(etag, "W/"))), http.StatusNotModified)
	w.want(look(second, field("If-None-Match", "*")), http.StatusNotModified)
	w.want(look(second, field("If-None-Match", `"x"`)), 200)

	w.want(w.call("DELETE", w.url+"/v1/jobs/"+first, "", key(keyA)), 200)
	moved := w.want(look(second, field("If-None-Match", etag)), 200) // it is next now
	if w.job(moved).Queue.Position != 1 {
		t.Errorf("moved: %s", moved.body)
	}
	w.start(second)
	started := w.want(look(second, field("If-None-Match", moved.Header.Get("ETag"))), 200)
	w.want(look(second, field("If-None-Match", started.Header.Get("ETag"))), http.StatusNotModified)
}

func TestAStatusIsHeldBackUntilTheJobIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	answers := make(chan answer)
	go func() { answers <- w.get("/v1/jobs/"+id, key(keyA), field("Prefer", "respond-async, wait=99")) }()
	w.eventually("the answer is held back", func() bool { return w.server.waits.held(heldWait) == 1 })
	w.succeed(id, 200, "text/plain", []byte("x"))
	select {
	case a := <-answers:
		if job := w.job(w.want(a, 200)); job.Status != api.Succeeded || a.Header.Get("Preference-Applied") != "wait=30" {
			t.Errorf("%s %v", a.body, a.Header)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no answer after the job's end")
	}
	w.eventually("nobody waits", func() bool { return w.server.waits.held(heldWait) == 0 })
}

func TestAPostIsHeldBackUntilItsJobIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	answers := make(chan answer)
	go func() { answers <- w.submit(w.plain, `1`, key(keyA), idempotent("k"), field("Prefer", "wait=20")) }()
	w.eventually("the answer is held back", func() bool { return w.server.waits.held(heldWait) == 1 })
	id := w.job(w.submit(w.plain, `1`, key(keyA), idempotent("k"))).ID
	w.succeed(id, 201, "text/plain", []byte("\xffx"))
	a := w.want(<-answers, 200)
	if string(a.body) != "\xffx" || a.Header.Get("Content-Type") != "text/plain" || a.Header.Get("Content-Location") != "/v1/jobs/"+id+"/result" {
		t.Errorf("%q %v, want the result itself", a.body, a.Header)
	}
	if a.Header.Get("Location") != "/v1/jobs/"+id || a.Header.Get("Preference-Applied") != "wait=20" || a.Header.Get("Forebay-Decision") != "accepted" {
		t.Errorf("%v", a.Header)
	}
}

// A client that waited learns of a job that ended otherwise from the job itself.
func TestAPostIsHeldBackUntilItsJobHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.job(w.submit(w.plain, `1`, key(keyA), idempotent("k"))).ID
	w.want(w.call("DELETE", w.url+"/v1/jobs/"+id, "", key(keyA)), 200)
	a := w.want(w.submit(w.plain, `1`, key(keyA), idempotent("k"), field("Prefer", "wait=20")), 200)
	if job := w.job(a); job.ID != id || job.Status != api.Canceled || a.Header.Get("Content-Location") != "/v1/jobs/"+id {
		t.Errorf("%s %v", a.body, a.Header)
	}
}

func TestAWaitEndsWithTheJobWhereItStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.pause()
	began := time.Now()
	a := w.want(w.submit(w.plain, `1`, key(keyA), field("Prefer", "wait=1")), http.StatusAccepted)
	if took := time.Since(began); took < time.Second || took > 5*time.Second || a.Header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("answered after %v: %v", took, a.Header)
	}
	if a.Header.Get("Retry-After") != "30" { // paused: there is no telling
		t.Errorf("Retry-After: %s", a.Header.Get("Retry-After"))
	}
}

func TestShuttingDownStepByStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.job(w.submit(w.plain, `1`, key(keyA))).ID
	answers := make(chan answer)
	go func() { answers <- w.get("/v1/jobs/"+id, key(keyA), field("Prefer", "wait=30")) }()
	w.eventually("the answer is held back", func() bool { return w.server.waits.held(heldWait) == 1 })
	if a := w.want(w.get("/readyz"), 200); a.Close {
		t.Error("a connection is closed for no reason")
	}

	w.server.Leave()
	w.problem(w.get("/readyz"), http.StatusServiceUnavailable, api.CodeNotReady)
	w.problem(w.call("GET", w.admin+"/readyz", ""), http.StatusServiceUnavailable, api.CodeShuttingDown)
	if a := w.want(w.submit(w.plain, `2`, key(keyA)), http.StatusAccepted); !a.Close {
		t.Error("the client isn't told to connect anew")
	}

	w.server.Refuse()
	a := w.submit(w.plain, `3`, key(keyA))
	w.problem(a, http.StatusServiceUnavailable, api.CodeShuttingDown)
	if a.Header.Get("Forebay-Decision") != `rejected;reason="shutting_down"` || a.Header.Get("Retry-After") == "" {
		t.Errorf("%v", a.Header)
	}
	w.want(w.get("/livez"), 200)
	w.want(w.get("/v1/jobs/"+id, key(keyA)), 200)

	select {
	case <-answers:
		t.Error("the wait ended before it had to")
	default:
	}
	w.server.Drain()
	w.server.Drain()
	select {
	case a := <-answers:
		w.want(a, 200)
	case <-time.After(10 * time.Second):
		t.Fatal("the wait outlives the shutdown")
	}
}
