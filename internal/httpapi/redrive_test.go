package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func (w *world) redriveMany(body string, fields ...[2]string) (done api.Redriven) {
	w.Helper()
	a := w.want(w.call("POST", w.admin+"/admin/v1/backends/"+w.backend+"/redrive", body, fields...), 200)
	strictly(w, "redrive", a.body, &done)
	return done
}

// failed submits a job and has it fail.
func (w *world) failed(operation, code string, fields ...[2]string) string {
	w.Helper()
	id := w.job(w.want(w.submit(operation, `"payload"`, fields...), 202)).ID
	w.fail(id, code, 500, "text/plain", []byte("no"))
	return id
}

func TestARedrivenJobRunsAgainUnderItsOwnID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	id := w.failed(w.plain, jobs.CodeBackendStatus, key(keyA))
	w.pause()
	path := "jobs/" + id + "/redrive"
	j := w.adminJob(w.adminCall("POST", path, field("Forebay-Operator", "maria")))
	if j.ID != id || j.Status != api.Queued || j.Attempts != 0 || j.Failure != nil || j.Answer != nil || j.Queue == nil || j.Queue.Position != 1 || j.ExpiresAt != nil {
		t.Errorf("redriven = %+v", j)
	}
	if own := w.job(w.want(w.get("/v1/jobs/"+id, key(keyA)), 200)); own.Status != api.Queued || own.Done || own.Error != nil {
		t.Errorf("its client sees %+v", own)
	}
	w.audited(`msg="job redriven"`, "by=maria address=127.0.0.1", "job_id="+id, "operation="+w.plain, "was=failed", "code=backend_status")

	w.problem(w.adminCall("POST", path), http.StatusConflict, api.CodeNotFailed)
	w.problem(w.adminCall("POST", "jobs/"+jobs.NewID(w.backend)+"/redrive"), http.StatusNotFound, api.CodeUnknownJob)
	if n := strings.Count(w.log.String(), `msg="job redriven"`); n != 1 {
		t.Errorf("%d lines of audit for one change", n)
	}
	w.want(w.tune(`{"paused":false}`), 200)
	w.succeed(id, 200, "text/plain", []byte("at last"))
	if a := w.want(w.get("/v1/jobs/"+id+"/result", key(keyA)), 200); string(a.body) != "at last" {
		t.Errorf("result %q", a.body)
	}
	b := w.backendNow()
	if b.Outcomes.Failed != 0 || b.Outcomes.Redriven != 1 || b.Outcomes.Succeeded != 1 || b.Outcomes.Accepted != 1 {
		t.Errorf("books = %+v", b.Outcomes)
	}
	// To Prometheus a counter that goes down has begun anew.
	for _, want := range []string{`jobs_finished_total{backend="` + w.backend + `",outcome="failed"} 1`, `jobs_redriven_total{backend="` + w.backend + `"} 1`} {
		if !strings.Contains(string(w.metrics()), "forebay_backend_"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestNoRedriveOverfillsTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		fast(s)
		s.line.Capacity = 2
	})
	ids := []string{w.failed(w.plain, jobs.CodeBackendStatus, key(keyA)), w.failed(w.plain, jobs.CodeBackendStatus, key(keyA)), w.failed(w.plain, jobs.CodeBackendStatus, key(keyA))}
	w.pause()
	w.want(w.submit(w.plain, `1`, key(keyA)), 202)
	if done := w.redriveMany(""); done != (api.Redriven{Redriven: 1, Stopped: api.StoppedFull}) {
		t.Errorf("redriven = %+v", done)
	}
	w.problem(w.adminCall("POST", "jobs/"+ids[2]+"/redrive"), http.StatusConflict, api.CodeLineFull)
	if j := w.adminJob(w.adminCall("GET", "jobs/"+ids[2])); j.Status != api.Failed || j.Answer.Body != "no" {
		t.Errorf("refused = %+v", j)
	}
	if j := w.adminJob(w.adminCall("GET", "jobs/"+ids[0])); j.Status != api.Queued {
		t.Errorf("the oldest goes first: %+v", j)
	}
}

func TestOnlyTheFailedJobsThatAreMeantAreRedriven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	slow := w.failed(w.plain, jobs.CodeBackendTimeout, key(keyA))
	other := w.failed(w.report, jobs.CodeBackendTimeout, key(keyB))
	anonymous := w.failed(w.plain, jobs.CodeBackendStatus, from("192.0.2.44"))
	for range 3 {
		w.failed(w.plain, jobs.CodeResultTooLarge, key(keyB))
	}
	w.pause()
	operator := field("Forebay-Operator", "maria")
	for _, step := range []struct {
		body    string
		want    api.Redriven
		audited string
		queued  string
	}{
		{`{"code":"nothing_like_it"}`, api.Redriven{Stopped: api.StoppedDone}, `code=nothing_like_it max=1000 redriven=0 stopped=none_left`, ""},
		{`{"operation":"` + w.report + `","code":"backend_timeout"}`, api.Redriven{Redriven: 1, Stopped: api.StoppedDone}, "operation=" + w.report + ` client="" code=backend_timeout max=1000 redriven=1`, other},
		{`{"client":"` + w.clientA() + `","max":1}`, api.Redriven{Redriven: 1, Stopped: api.StoppedMax}, "client=" + w.clientA() + ` code="" max=1 redriven=1 stopped=max_reached`, slow},
		{`{"client":"ip:192.0.2.44"}`, api.Redriven{Redriven: 1, Stopped: api.StoppedDone}, "client=anonymous", anonymous},
		{`{"max":2}`, api.Redriven{Redriven: 2, Stopped: api.StoppedMax}, "max=2 redriven=2", ""},
		{``, api.Redriven{Redriven: 1, Stopped: api.StoppedDone}, `operation="" client="" code="" max=1000 redriven=1`, ""},
	} {
		if got := w.redriveMany(step.body, operator); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.body, got, step.want)
		}
		w.audited(`msg="jobs redriven"`, "by=maria address=127.0.0.1", "backend="+w.backend+" ", step.audited)
		if step.queued != "" && w.adminJob(w.adminCall("GET", "jobs/"+step.queued)).Status != api.Queued {
			t.Errorf("%s: %s is not queued", step.body, step.queued)
		}
	}
	if left := w.listed("status=failed").Jobs; len(left) > 0 {
		t.Errorf("left: %v", idsOf(left))
	}
	if strings.Contains(w.log.String(), "192.0.2.44") {
		t.Error("a caller's address is in the log")
	}
}

func TestARedriveThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	id := w.failed(w.plain, jobs.CodeBackendStatus, key(keyA))
	post := func(body string, fields ...[2]string) answer {
		return w.call("POST", w.admin+"/admin/v1/backends/"+w.backend+"/redrive", body, fields...)
	}
	for body, pointers := range map[string]string{
		`{"client":""}`: "#/client", `{"operation":""}`: "#/operation", `{"code":null}`: "#/code", `{"code":5}`: "#/code", `{"max":0}`: "#/max", `{"max":10001}`: "#/max",
		`{"max":"all"}`: "#/max", `{"before":"x"}`: "#/before", `{"Client":"x"}`: "#/Client", `{"max":0,"client":""}`: "#/max #/client",
	} {
		var got []string
		for _, e := range w.problem(post(body), http.StatusUnprocessableEntity, api.CodeInvalidFields).Errors {
			got = append(got, e.Pointer)
		}
		if strings.Join(got, " ") != pointers {
			t.Errorf("%s: %v, want %s", body, got, pointers)
		}
	}
	for _, body := range []string{`[]`, `{`, ` `, `{"max":1,"max":2}`} {
		w.problem(post(body), http.StatusBadRequest, api.CodeInvalidRequest)
	}
	w.problem(post("", field("Content-Type", "application/json")), http.StatusBadRequest, api.CodeInvalidRequest) // a variable that wasn't set
	w.problem(post(`{"max":1}`, field("Content-Type", "text/plain")), http.StatusUnsupportedMediaType, api.CodeMediaType)
	w.problem(post(`{"client":"`+strings.Repeat("x", 5000)+`"}`), http.StatusRequestEntityTooLarge, api.CodeTooLarge)
	w.problem(w.adminCall("POST", "backends/nope/redrive"), http.StatusNotFound, api.CodeUnknownBackend)
	w.store.down.Store(true)
	w.problem(post(""), http.StatusServiceUnavailable, api.CodeStore)
	w.store.down.Store(false)
	if j := w.adminJob(w.adminCall("GET", "jobs/"+id)); j.Status != api.Failed {
		t.Errorf("something was redriven: %+v", j)
	}
}

// What was done before a redrive was cut short is told, since it stands.
func TestARedriveThatIsCutShortTellsWhatWasDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		fast(s)
		s.wrap = func(l wholeLine) wholeLine { return deafLine{l} }
	})
	w.problem(w.adminCall("POST", "backends/"+w.backend+"/redrive"), http.StatusServiceUnavailable, api.CodeStore)
	w.audited(`msg="jobs redriven"`, "outcome=unknown", "redriven=0")
	w.failed(w.plain, jobs.CodeBackendStatus, key(keyA))
	if done := w.redriveMany(""); done != (api.Redriven{Redriven: 1, Stopped: api.StoppedStore}) {
		t.Errorf("redriven = %+v", done)
	}
	w.audited(`msg="jobs redriven"`, "outcome=unknown", "redriven=1")
}

func TestALongRedriveEndsInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.wrap = func(l wholeLine) wholeLine { return endlessLine{l} } })
	w.server.redriveTime = 50 * time.Millisecond
	if done := w.redriveMany(""); done != (api.Redriven{Redriven: 7, Stopped: api.StoppedTime}) {
		t.Errorf("redriven = %+v", done)
	}
	w.audited(`msg="jobs redriven"`, "redriven=7 stopped=time_over")
}

// endlessLine has redriven seven jobs when its time is over.
type endlessLine struct{ wholeLine }

func (endlessLine) RedriveAll(ctx context.Context, _ leaky.FailedFilter, _ int) (leaky.RedriveResult, error) {
	<-ctx.Done()
	return leaky.RedriveResult{Redriven: 7}, ctx.Err()
}
