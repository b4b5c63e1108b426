package adminapi_test

import (
	"testing"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/testforebay"
)

// Each call of the admin listener is described in its contract, which the listener serves.
func TestEachCallIsInTheContract(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	calls := 0
	for path, methods := range w.Operators.Calls() {
		for _, method := range methods {
			calls++
			if method != "HEAD" && !testforebay.Described(t, "admin.yaml", method, path) {
				t.Errorf("admin.yaml doesn't describe %s %s", method, path)
			}
		}
	}
	if calls < 20 {
		t.Errorf("only %d calls", calls)
	}
	a := w.Want(w.AdminCall("GET", "openapi.yaml"), 200)
	if string(a.Text) != string(api.AdminOpenAPI) {
		t.Errorf("another contract: %.100s", a.Text)
	}
}
