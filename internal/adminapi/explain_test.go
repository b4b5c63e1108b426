package adminapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func (w *world) explain(id string) (e api.Explanation) {
	w.Helper()
	strictly(w, id, w.Want(w.AdminCall("GET", "jobs/"+id+"/explain"), 200).Text, &e)
	return e
}

// An operator sees why a job waits: who is ahead, who set the rate, what doesn't hold it, and what
// would help.
func TestAnOperatorSeesWhyAJobWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for range 5 {
		w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)
	}
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID
	w.Want(w.Call("PATCH", w.Admin+"/admin/v1/backends/"+w.Backend,
		`{"rate":"2/s","reason":"their advice"}`, field("Forebay-Operator", "kim")), 200)
	e := w.explain(id)
	if e.Position != 6 || e.Waiting != 6 || e.Client != w.ClientA() || *e.StartsInSeconds < 2 ||
		e.Ahead.Jobs != 5 || len(e.Ahead.Clients) != 1 || e.Ahead.Clients[0].Jobs != 5 ||
		e.Rate.Configured != "10/s" || *e.Rate.Override != "2/s" || e.Rate.SetBy != "kim" ||
		e.Rate.Factor != 1 || len(e.Holds) != 3 || len(e.Sooner) == 0 {
		t.Errorf("explanation = %+v\nrate %+v\nahead %+v", e, e.Rate, e.Ahead)
	}
	text := string(w.Want(w.AdminCall("GET", "jobs/"+id+"/explain?format=text"), 200).Text)
	for _, part := range []string{"waits 6th of 6 in " + w.Backend, "2/s = 2/s (set by kim ",
		"configured 10/s", "holds not  gate open, 0 of 10 calls at once, not paused", "sooner"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	w.Want(w.Call("PATCH", w.Admin+"/admin/v1/backends/"+w.Backend,
		`{"paused":true,"expires_in":"1h"}`, field("Forebay-Operator", "jo")), 200)
	e = w.explain(id)
	if pause := e.Holds[2]; e.Rate.SetBy != "kim" || e.Rate.Reason != "their advice" ||
		pause.SetBy != "jo" || pause.SetAt == nil || pause.ExpiresAt == nil {
		t.Errorf("rate %+v, pause %+v", e.Rate, pause)
	}
	if e.StartsAt != nil || e.Sooner[0].Change != leaky.ToResume {
		t.Errorf("paused: %+v", e)
	}
}

// A job in any other state says what it does, or how it ended.
func TestAJobThatDoesNotWaitExplainsItselfToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	submit := func() string { return w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID }
	check := func(id, state, part string) {
		t.Helper()
		e := w.explain(id)
		if e.State != state || !strings.Contains(e.Reason, part) || e.Position != 0 ||
			e.Rate != nil {
			t.Errorf("want %s, %q: %+v", state, part, e)
		}
	}
	failed := submit()
	w.FailJob(failed, jobs.CodeBackendStatus, 422, "text/plain", []byte("no"))
	check(failed, "failed", jobs.CodeBackendStatus)
	delayed := submit()
	w.Settle(leaky.Settlement{Ticket: w.Start(delayed), To: jobs.Delayed, Delay: time.Hour,
		Failure: jobs.Failure{Code: jobs.CodeBackendTimeout}})
	check(delayed, "delayed", "waits for its retry")
	if e := w.explain(delayed); e.StartsInSeconds == nil || *e.StartsInSeconds < 3500 {
		t.Errorf("delayed: %+v", e)
	}
	running := submit()
	w.Start(running)
	check(running, "running", "calling the backend")
	canceled := submit()
	w.Want(w.AdminCall("DELETE", "jobs/"+canceled), 200)
	check(canceled, "canceled", "was canceled")
	done := submit()
	w.Succeed(done, 200, "text/plain", []byte("x"))
	check(done, "succeeded", "succeeded")
	w.Problem(w.AdminCall("GET", "jobs/"+jobs.NewID(w.Backend)+"/explain"), http.StatusNotFound,
		api.CodeUnknownJob)
	w.Problem(w.AdminCall("GET", "jobs/"+done+"/explain?format=xml"), http.StatusBadRequest,
		api.CodeInvalidRequest)
}
