package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/forebay/forebay/api"
)

// A shared job is unowned: although the backend gets its id and a caller may learn it, there is no
// such job on the public listener, before its end and after it, not even for the caller whose turn
// it took. Operators see and cancel it.
func TestASharedJobIsUnowned(t *testing.T) {
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
	first := w.Job(w.Want(w.Submit(w.Shared, `1`, callers[0]), http.StatusAccepted)).ID
	second := w.Job(w.Want(w.Submit(w.Shared, `1`, callers[1]), http.StatusAccepted)).ID
	job := w.waiting()[0].Job.ID
	unknown(job)
	if n := len(w.waiting()); n != 1 {
		t.Fatalf("%d jobs wait", n)
	}
	w.Succeed(job, 200, "text/plain", []byte("done"))
	unknown(job)
	for id, caller := range map[string][2]string{first: callers[0], second: callers[1]} {
		w.Want(w.Get("/v1/jobs/"+id+"/result", caller), 200)
		w.Want(w.AdminCall("GET", "jobs/"+job), 200)
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", caller), http.StatusNoContent)
	}
	unknown(job) // purged with its last subscription

	shared := w.Job(w.Want(w.Submit(w.Shared, `1`, callers[0]), http.StatusAccepted)).ID
	w.Want(w.AdminCall("DELETE", "jobs/"+w.waiting()[0].Job.ID), 200)
	if j := w.Job(w.Get("/v1/jobs/"+shared, callers[0])); j.Status != api.Canceled {
		t.Errorf("an operator has canceled its job: %+v", j)
	}
}
