package adminapi_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
)

func (w *world) redriveMany(body string, fields ...[2]string) (done api.Redriven) {
	w.Helper()
	a := w.Want(w.Call("POST", w.Admin+"/admin/v1/backends/"+w.Backend+"/redrive", body, fields...),
		200)
	strictly(w, "redrive", a.Text, &done)
	return done
}

// failed submits a job and has it fail.
func (w *world) failed(operation, code string, fields ...[2]string) string {
	w.Helper()
	id := w.Job(w.Want(w.Submit(operation, `"payload"`, fields...), 202)).ID
	w.FailJob(id, code, 500, "text/plain", []byte("no"))
	return id
}

func TestARedrivenJobRunsAgainUnderItsOwnID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	id := w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA))
	w.Pause()
	path := "jobs/" + id + "/redrive"
	j := w.AdminJob(w.AdminCall("POST", path, field("Forebay-Operator", "maria")))
	if j.ID != id || j.Status != api.Queued || j.Attempts != 0 || j.Failure != nil ||
		j.Answer != nil || j.Queue == nil || j.Queue.Position != 1 || j.ExpiresAt != nil {
		t.Errorf("redriven = %+v", j)
	}
	if own := w.Job(w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200)); own.Status != api.Queued ||
		own.Done || own.Error != nil {
		t.Errorf("its client sees %+v", own)
	}
	w.audited(`msg="job redriven"`, "by=maria address=127.0.0.1", "job_id="+id,
		"operation="+w.Plain, "was=failed", "code=backend_status")

	w.Problem(w.AdminCall("POST", path), http.StatusConflict, api.CodeNotFailed)
	w.Problem(w.AdminCall("POST", "jobs/"+jobs.NewID(w.Backend)+"/redrive"), http.StatusNotFound,
		api.CodeUnknownJob)
	if n := strings.Count(w.Logs.String(), `msg="job redriven"`); n != 1 {
		t.Errorf("%d lines of audit for one change", n)
	}
	w.Want(w.tune(`{"paused":false}`), 200)
	w.Succeed(id, 200, "text/plain", []byte("at last"))
	if a := w.Want(w.Get("/v1/jobs/"+id+"/result", key(keyA)), 200); string(a.Text) != "at last" {
		t.Errorf("result %q", a.Text)
	}
	b := w.backendNow()
	if b.Outcomes.Failed != 0 || b.Outcomes.Redriven != 1 || b.Outcomes.Succeeded != 1 ||
		b.Outcomes.Accepted != 1 {
		t.Errorf("books = %+v", b.Outcomes)
	}
	// To Prometheus a counter that goes down has begun anew.
	for _, want := range []string{`jobs_finished_total{backend="` + w.Backend +
		`",outcome="failed"} 1`, `jobs_redriven_total{backend="` + w.Backend + `"} 1`} {
		if !strings.Contains(string(w.Metrics()), "forebay_backend_"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestNoRedriveOverfillsTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		fast(s)
		s.Line.Capacity = 2
	})
	ids := []string{w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA)),
		w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA)),
		w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA))}
	w.Pause()
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)
	if done := w.redriveMany(""); done != (api.Redriven{Redriven: 1, Stopped: api.StoppedFull}) {
		t.Errorf("redriven = %+v", done)
	}
	w.Problem(w.AdminCall("POST", "jobs/"+ids[2]+"/redrive"), http.StatusConflict, api.CodeLineFull)
	if j := w.AdminJob(w.AdminCall("GET", "jobs/"+ids[2])); j.Status != api.Failed ||
		j.Answer.Body != "no" {
		t.Errorf("refused = %+v", j)
	}
	if j := w.AdminJob(w.AdminCall("GET", "jobs/"+ids[0])); j.Status != api.Queued {
		t.Errorf("the oldest goes first: %+v", j)
	}
}

func TestOnlyTheFailedJobsThatAreMeantAreRedriven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	slow := w.failed(w.Plain, jobs.CodeBackendTimeout, key(keyA))
	other := w.failed(w.Report, jobs.CodeBackendTimeout, key(keyB))
	anonymous := w.failed(w.Plain, jobs.CodeBackendStatus, from("192.0.2.44"))
	for range 3 {
		w.failed(w.Plain, jobs.CodeResultTooLarge, key(keyB))
	}
	w.Pause()
	operator := field("Forebay-Operator", "maria")
	for _, step := range []struct {
		body    string
		want    api.Redriven
		audited string
		queued  string
	}{
		{`{"code":"nothing_like_it"}`, api.Redriven{Stopped: api.StoppedDone},
			`code=nothing_like_it max=1000 redriven=0 stopped=none_left`, ""},
		{`{"operation":"` + w.Report + `","code":"backend_timeout"}`,
			api.Redriven{Redriven: 1, Stopped: api.StoppedDone},
			"operation=" + w.Report + ` client="" code=backend_timeout max=1000 redriven=1`, other},
		{`{"client":"` + w.ClientA() + `","max":1}`,
			api.Redriven{Redriven: 1, Stopped: api.StoppedMax},
			"client=" + w.ClientA() + ` code="" max=1 redriven=1 stopped=max_reached`, slow},
		{`{"client":"ip:192.0.2.44"}`, api.Redriven{Redriven: 1, Stopped: api.StoppedDone},
			"client=anonymous", anonymous},
		{`{"max":2}`, api.Redriven{Redriven: 2, Stopped: api.StoppedMax}, "max=2 redriven=2", ""},
		{``, api.Redriven{Redriven: 1, Stopped: api.StoppedDone},
			`operation="" client="" code="" max=1000 redriven=1`, ""},
	} {
		if got := w.redriveMany(step.body, operator); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.body, got, step.want)
		}
		w.audited(`msg="jobs redriven"`, "by=maria address=127.0.0.1", "backend="+w.Backend+" ",
			step.audited)
		if step.queued != "" &&
			w.AdminJob(w.AdminCall("GET", "jobs/"+step.queued)).Status != api.Queued {
			t.Errorf("%s: %s is not queued", step.body, step.queued)
		}
	}
	if left := w.listed("status=failed").Jobs; len(left) > 0 {
		t.Errorf("left: %v", idsOf(left))
	}
	if strings.Contains(w.Logs.String(), "192.0.2.44") {
		t.Error("a caller's address is in the log")
	}
}

func TestARedriveThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	id := w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA))
	post := func(body string, fields ...[2]string) answer {
		return w.Call("POST", w.Admin+"/admin/v1/backends/"+w.Backend+"/redrive", body, fields...)
	}
	for body, pointers := range map[string]string{
		`{"client":""}`: "#/client", `{"operation":""}`: "#/operation", `{"code":null}`: "#/code",
		`{"code":5}`: "#/code", `{"max":0}`: "#/max", `{"max":10001}`: "#/max",
		`{"max":"all"}`: "#/max", `{"before":"x"}`: "#/before", `{"Client":"x"}`: "#/Client",
		`{"max":0,"client":""}`: "#/max #/client",
	} {
		var got []string
		for _, e := range w.Problem(post(body), http.StatusUnprocessableEntity,
			api.CodeInvalidFields).Errors {
			got = append(got, e.Pointer)
		}
		if strings.Join(got, " ") != pointers {
			t.Errorf("%s: %v, want %s", body, got, pointers)
		}
	}
	for _, body := range []string{`[]`, `{`, ` `, `{"max":1,"max":2}`} {
		w.Problem(post(body), http.StatusBadRequest, api.CodeInvalidRequest)
	}
	// a variable that wasn't set
	w.Problem(post("", field("Content-Type", "application/json")), http.StatusBadRequest,
		api.CodeInvalidRequest)
	w.Problem(post(`{"max":1}`, field("Content-Type", "text/plain")),
		http.StatusUnsupportedMediaType, api.CodeMediaType)
	w.Problem(post(`{"client":"`+strings.Repeat("x", 5000)+`"}`), http.StatusRequestEntityTooLarge,
		api.CodeTooLarge)
	w.Problem(w.AdminCall("POST", "backends/nope/redrive"), http.StatusNotFound,
		api.CodeUnknownBackend)
	w.Store.Down.Store(true)
	w.Problem(post(""), http.StatusServiceUnavailable, api.CodeStore)
	w.Store.Down.Store(false)
	if j := w.AdminJob(w.AdminCall("GET", "jobs/"+id)); j.Status != api.Failed {
		t.Errorf("something was redriven: %+v", j)
	}
}

// A redrive that is cut short reports the jobs that it has put back: they stay in the line.
func TestARedriveThatIsCutShortTellsWhatWasDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		fast(s)
		s.Wrap = func(l testforebay.Line) testforebay.Line { return deafLine{l} }
	})
	w.Problem(w.AdminCall("POST", "backends/"+w.Backend+"/redrive"), http.StatusServiceUnavailable,
		api.CodeStore)
	w.audited(`msg="jobs redriven"`, "outcome=unknown", "redriven=0")
	w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA))
	if done := w.redriveMany(""); done != (api.Redriven{Redriven: 1, Stopped: api.StoppedStore}) {
		t.Errorf("redriven = %+v", done)
	}
	w.audited(`msg="jobs redriven"`, "outcome=unknown", "redriven=1")
}

func TestALongRedriveEndsInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { return endlessLine{l} }
	})
	w.Operators.SetRedriveTime(50 * time.Millisecond)
	if done := w.redriveMany(""); done != (api.Redriven{Redriven: 7, Stopped: api.StoppedTime}) {
		t.Errorf("redriven = %+v", done)
	}
	w.audited(`msg="jobs redriven"`, "redriven=7 stopped=time_over")
}

// endlessLine has redriven seven jobs when its time is over.
type endlessLine struct{ testforebay.Line }

func (endlessLine) RedriveAll(ctx context.Context, _ leaky.FailedFilter,
	_ int) (leaky.RedriveResult, error) {
	<-ctx.Done()
	return leaky.RedriveResult{Redriven: 7}, ctx.Err()
}

func (w *world) previewed(body string) (p api.RedrivePreview) {
	w.Helper()
	a := w.Want(w.Call("POST", w.Admin+"/admin/v1/backends/"+w.Backend+"/redrive", body), 200)
	strictly(w, "redrive", a.Text, &p)
	return p
}

// What was previewed is what is redriven, whatever fails or is redriven singly meanwhile.
func TestAPreviewBinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	timeouts := []string{w.failed(w.Plain, jobs.CodeBackendTimeout, key(keyA)),
		w.failed(w.Plain, jobs.CodeBackendTimeout, key(keyA)),
		w.failed(w.Report, jobs.CodeBackendTimeout, key(keyB))}
	w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA))
	p := w.previewed(`{"code":"backend_timeout","dry_run":true}`)
	first := w.AdminJob(w.AdminCall("GET", "jobs/"+timeouts[0]))
	if p.Jobs != 3 || p.Stopped != api.StoppedDone || p.Token == "" || p.Backend != w.Backend ||
		p.ValidTo.Sub(p.At.Time) != 15*time.Minute || !p.OldestAt.Equal(first.FinishedAt.Time) ||
		len(p.ByClient) != 2 || p.ByClient[w.ClientA()] != 2 ||
		!maps.Equal(p.ByOperation, map[string]int{w.Plain: 2, w.Report: 1}) ||
		!maps.Equal(p.ByCode, map[string]int{"backend_timeout": 3}) ||
		p.Ahead != 0 || p.Room != 1000 || p.Paused || p.LeftAt == nil ||
		p.LeftAt.Before(p.At.Time) {
		t.Errorf("preview = %+v", p)
	}
	if n := len(w.listed("status=failed").Jobs); n != 4 {
		t.Errorf("%d jobs are failed after a preview", n)
	}
	newer := w.failed(w.Plain, jobs.CodeBackendTimeout, key(keyA))
	w.Want(w.AdminCall("POST", "jobs/"+timeouts[1]+"/redrive"), 200)
	// Not the failure that was seen.
	w.FailJob(timeouts[1], jobs.CodeBackendTimeout, 500, "text/plain", nil)
	w.Pause()
	limited := `{"limit_to":"` + p.Token + `"}`
	done := w.redriveMany(limited, field("Forebay-Operator", "maria"))
	if done != (api.Redriven{Redriven: 2, Skipped: 1, Stopped: api.StoppedDone}) {
		t.Errorf("redriven = %+v", done)
	}
	w.audited(`msg="jobs redriven"`, "by=maria",
		"limit_to="+p.Token+" skipped=1 redriven=2 stopped=none_left")
	for id, want := range map[string]string{timeouts[0]: api.Queued, timeouts[1]: api.Failed,
		timeouts[2]: api.Queued, newer: api.Failed} {
		if j := w.AdminJob(w.AdminCall("GET", "jobs/"+id)); j.Status != want {
			t.Errorf("%s is %s, want %s", id, j.Status, want)
		}
	}
	done = w.redriveMany(limited)
	if done != (api.Redriven{Skipped: 3, Stopped: api.StoppedDone}) {
		t.Errorf("again: %+v", done)
	}
	p = w.previewed(`{"dry_run":true,"max":1}`)
	if p.Jobs != 1 || p.Stopped != api.StoppedMax || !p.Paused || p.LeftAt != nil || p.Ahead != 2 {
		t.Errorf("of a paused backend: %+v", p)
	}
	p = w.previewed(`{"dry_run":true,"code":"nothing_like_it"}`)
	if p.Jobs != 0 || p.Token != "" || p.OldestAt != nil || p.LeftAt != nil {
		t.Errorf("of nothing: %+v", p)
	}
}

// elsewhere is a line whose previews are all another's.
type elsewhere struct{ testforebay.Line }

func (elsewhere) RedrivePreviewed(context.Context, string) (leaky.RedriveResult, error) {
	return leaky.RedriveResult{}, leaky.ErrNoPreview
}

func (elsewhere) HasPreview(context.Context, string) (bool, error) { return true, nil }

func TestATokenOfAnotherBackendIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { return elsewhere{l} }
	})
	p := w.Problem(w.Call("POST", w.Admin+"/admin/v1/backends/"+w.Backend+"/redrive",
		`{"limit_to":"k3zq7f2m5a"}`), http.StatusUnprocessableEntity, api.CodeInvalidFields)
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Detail, "another backend: "+w.Backend) {
		t.Errorf("%+v", p)
	}
}

func TestATokenThatIsOfNoPreviewIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA))
	post := func(body string) answer {
		return w.Call("POST", w.Admin+"/admin/v1/backends/"+w.Backend+"/redrive", body)
	}
	p := w.Problem(post(`{"limit_to":"aaaaaaaaaa"}`), http.StatusNotFound, api.CodeUnknownPreview)
	if !strings.Contains(p.Detail, "15m") || !strings.Contains(p.Detail, "dry_run") {
		t.Errorf("%+v", p)
	}
	for body, pointer := range map[string]string{
		`{"limit_to":""}`: "#/limit_to", `{"limit_to":5}`: "#/limit_to",
		`{"dry_run":"yes"}`:           "#/dry_run",
		`{"limit_to":"x","code":"y"}`: "#/limit_to", `{"limit_to":"x","max":1}`: "#/limit_to",
		`{"limit_to":"x","dry_run":true}`: "#/limit_to",
	} {
		p := w.Problem(post(body), http.StatusUnprocessableEntity, api.CodeInvalidFields)
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	if n := len(w.listed("status=failed").Jobs); n != 1 {
		t.Errorf("%d jobs are failed", n)
	}
}
