package httpapi

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// The job that callers share, and a refresh, is nobody's, though the backend is told its id and a caller may learn it: on the public listener there
// is no such job, before its end and after it, also for the caller whose turn it took. Operators see and cancel it.
func TestAJobForManyIsNobodysOwn(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	callers := [][2]string{key(keyA), key(keyB), from("192.0.2.1")}
	unknown := func(id string) {
		t.Helper()
		for _, caller := range callers {
			for _, a := range []answer{
				w.get("/v1/jobs/"+id, caller),
				w.get("/v1/jobs/"+id, caller, field("Accept", "text/event-stream")),
				w.get("/v1/jobs/"+id+"/result", caller),
				w.call("DELETE", w.url+"/v1/jobs/"+id, "", caller),
				w.call("DELETE", w.url+"/v1/jobs/"+id+"?purge=1", "", caller),
			} {
				w.problem(a, http.StatusNotFound, api.CodeUnknownJob)
			}
		}
	}
	refresh := func() string {
		t.Helper()
		o := leaky.Offer{Job: jobs.Job{ID: jobs.NewID(w.backend), Operation: w.shared, Client: w.clientA(), Priority: jobs.Low, Payload: []byte("2")},
			Weight: 1, MaxAge: time.Hour, Keep: time.Hour, Join: "two", Refresh: true}
		if place, err := w.line.Offer(context.Background(), o); err != nil || place.Outcome != leaky.Accepted {
			t.Fatalf("offer = %+v, %v", place, err)
		}
		return o.Job.ID
	}
	first := w.job(w.want(w.submit(w.shared, `1`, callers[0]), http.StatusAccepted)).ID
	second := w.job(w.want(w.submit(w.shared, `1`, callers[1]), http.StatusAccepted)).ID
	job, fresh := w.waiting()[0].Job.ID, refresh()
	unknown(job)
	unknown(fresh)
	if n := len(w.waiting()); n != 2 {
		t.Fatalf("%d jobs wait", n)
	}
	w.succeed(job, 200, "text/plain", []byte("done"))
	w.succeed(fresh, 200, "text/plain", []byte("done"))
	unknown(job)
	unknown(fresh)
	for id, caller := range map[string][2]string{first: callers[0], second: callers[1]} {
		w.want(w.get("/v1/jobs/"+id+"/result", caller), 200)
		w.want(w.adminCall("GET", "jobs/"+job), 200)
		w.want(w.call("DELETE", w.url+"/v1/jobs/"+id+"?purge=1", "", caller), http.StatusNoContent)
	}
	unknown(job) // purged with its last share

	shared := w.job(w.want(w.submit(w.shared, `1`, callers[0]), http.StatusAccepted)).ID
	w.want(w.adminCall("DELETE", "jobs/"+w.waiting()[0].Job.ID), 200)
	if j := w.job(w.get("/v1/jobs/"+shared, callers[0])); j.Status != api.Canceled {
		t.Errorf("an operator has canceled its job: %+v", j)
	}
	fresh = refresh()
	w.settle(leaky.Settlement{Ticket: w.start(fresh), To: jobs.Failed, Failure: jobs.Failure{Code: jobs.CodeBackendStatus}})
	w.problem(w.adminCall("POST", "jobs/"+fresh+"/redrive"), http.StatusConflict, api.CodeNotFailed)
}
