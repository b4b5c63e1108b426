package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// The job that callers share, and a refresh, is nobody's, though the backend is told its id and a
// caller may learn it: on the public listener there is no such job, before its end and after it,
// also for the caller whose turn it took. Operators see and cancel it.
func TestAJobForManyIsNobodysOwn(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	callers := [][2]string{key(keyA), key(keyB), from("192.0.2.1")}
	unknown := func(id string) {
		t.Helper()
		for _, caller := range callers {
			for _, a := range []answer{
				w.Get("/v1/jobs/"+id, caller),
				w.Get("/v1/jobs/"+id, caller, field("Accept", "text/event-stream")),
				w.Get("/v1/jobs/"+id+"/result", caller),
				w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", caller),
				w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", caller),
			} {
				w.Problem(a, http.StatusNotFound, api.CodeUnknownJob)
			}
		}
	}
	refresh := func() string {
		t.Helper()
		o := leaky.Offer{Job: jobs.Job{ID: jobs.NewID(w.Backend), Operation: w.Shared,
			Client: w.ClientA(), Priority: jobs.Low, Payload: []byte("2")},
			Weight: 1, MaxAge: time.Hour, Keep: time.Hour, Join: "two", Refresh: true}
		if place, err := w.Line.Offer(context.Background(), o); err != nil ||
			place.Outcome != leaky.Accepted {
			t.Fatalf("offer = %+v, %v", place, err)
		}
		return o.Job.ID
	}
	first := w.Job(w.Want(w.Submit(w.Shared, `1`, callers[0]), http.StatusAccepted)).ID
	second := w.Job(w.Want(w.Submit(w.Shared, `1`, callers[1]), http.StatusAccepted)).ID
	job, fresh := w.waiting()[0].Job.ID, refresh()
	unknown(job)
	unknown(fresh)
	if n := len(w.waiting()); n != 2 {
		t.Fatalf("%d jobs wait", n)
	}
	w.Succeed(job, 200, "text/plain", []byte("done"))
	w.Succeed(fresh, 200, "text/plain", []byte("done"))
	unknown(job)
	unknown(fresh)
	for id, caller := range map[string][2]string{first: callers[0], second: callers[1]} {
		w.Want(w.Get("/v1/jobs/"+id+"/result", caller), 200)
		w.Want(w.AdminCall("GET", "jobs/"+job), 200)
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", caller), http.StatusNoContent)
	}
	unknown(job) // purged with its last share

	shared := w.Job(w.Want(w.Submit(w.Shared, `1`, callers[0]), http.StatusAccepted)).ID
	w.Want(w.AdminCall("DELETE", "jobs/"+w.waiting()[0].Job.ID), 200)
	if j := w.Job(w.Get("/v1/jobs/"+shared, callers[0])); j.Status != api.Canceled {
		t.Errorf("an operator has canceled its job: %+v", j)
	}
	fresh = refresh()
	w.Settle(leaky.Settlement{Ticket: w.Start(fresh), To: jobs.Failed,
		Failure: jobs.Failure{Code: jobs.CodeBackendStatus}})
	w.Problem(w.AdminCall("POST", "jobs/"+fresh+"/redrive"), http.StatusConflict, api.CodeNotFailed)
}
