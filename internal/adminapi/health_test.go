package adminapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/forebay/forebay/api"
)

func (w *world) diagnosis() (d api.Diagnosis) {
	w.Helper()
	strictly(w, "health", w.Want(w.AdminCall("GET", "health"), 200).Text, &d)
	return d
}

// An operator learns that a backend is paused, by whom, and what to do, and that the rest is well.
func TestAnOperatorAsksWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if d := w.diagnosis(); d.Level != api.LevelOK {
		t.Errorf("at first: %+v", d)
	}
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)
	w.Want(w.Call("PATCH", w.Admin+"/admin/v1/backends/"+w.Backend, `{"paused":true}`,
		field("Forebay-Operator", "kim")), 200)
	var d api.Diagnosis
	w.Eventually("the pause is seen", func() bool { d = w.diagnosis(); return d.Level != "ok" })
	f := d.Findings[0]
	if d.Level != api.LevelWarning || f.Backend != w.Backend ||
		f.Next != "forebay resume "+w.Backend || !strings.Contains(f.Cause, "kim") || f.Since == nil {
		t.Errorf("paused: %+v", d)
	}
	text := string(w.Want(w.AdminCall("GET", "health?format=text"), 200).Text)
	if !strings.HasPrefix(text, "warning  "+w.Backend+"  paused by kim") ||
		!strings.Contains(text, "\nok       store") {
		t.Errorf("as text:\n%s", text)
	}
	w.Problem(w.AdminCall("GET", "health?format=xml"), http.StatusBadRequest,
		api.CodeInvalidRequest)
}

// Without the store the question is answered, too: the store is what is wrong.
func TestADiagnosisNeedsNoStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := w.diagnosis()
	w.Store.Down.Store(true)
	d := w.diagnosis()
	if f := d.Findings[0]; d.Level != api.LevelCritical || f.Thing != "store" || f.Since == nil {
		t.Errorf("without the store: %+v; before: %+v", d, first)
	}
	since := d.Findings[0].Since
	if again := w.diagnosis(); !again.Findings[0].Since.Equal(since.Time) {
		t.Errorf("since %v, then since %v", since, again.Findings[0].Since)
	}
}
