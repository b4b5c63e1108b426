package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/forebay/forebay/api"
)

// A client sees why its own job waits, and nothing of other clients or of operators.
func TestAClientSeesWhyItsJobWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for range 3 {
		w.Want(w.Submit(w.Plain, `1`, key(keyB)), 202)
	}
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID
	w.Want(w.Call("PATCH", w.Admin+"/admin/v1/backends/"+w.Backend, `{"rate":"2/s"}`,
		field("Forebay-Operator", "kim")), 200)
	a := w.Want(w.Get("/v1/jobs/"+id+"?explain=1", key(keyA)), 200)
	var e api.Explanation
	strictly(t, "explain", a.Text, &e)
	if e.JobID != id || e.Position < 1 || e.Waiting != 4 || e.Ahead.Jobs != e.Position-1 ||
		e.StartsAt == nil || e.Rate.Effective != "2/s" {
		t.Errorf("explanation = %s", a.Text)
	}
	text := string(w.Want(w.Get("/v1/jobs/"+id+"?explain=1&format=text", key(keyA)), 200).Text)
	if !strings.Contains(text, "waits ") {
		t.Errorf("as text: %s", text)
	}
	for _, secret := range []string{"kim", "10/s", "clients"} {
		if strings.Contains(string(a.Text), secret) || strings.Contains(text, secret) {
			t.Errorf("a client learns of %s: %s\n%s", secret, a.Text, text)
		}
	}
	w.Problem(w.Get("/v1/jobs/"+id+"?explain=1", key(keyB)), http.StatusNotFound,
		api.CodeUnknownJob)
	for _, query := range []string{"explain=0", "explain=", "explain=1&x=1",
		"explain=1&format=xml"} {
		w.Problem(w.Get("/v1/jobs/"+id+"?"+query, key(keyA)), http.StatusBadRequest,
			api.CodeInvalidRequest)
	}
}
