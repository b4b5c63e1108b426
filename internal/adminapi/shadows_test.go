package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/shadows"
	"github.com/forebay/forebay/internal/testforebay"
)

// books are those on shadow limits, as a test sets them.
type books struct {
	top []shadows.Count
	err error
}

func (b *books) Top(context.Context) ([]shadows.Count, error) { return b.top, b.err }

func TestOperatorsSeeWhomTrialsWouldHaveRefused(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 7, 34, 49, 120e6, time.UTC)
	noted := &books{top: []shadows.Count{{Limit: "a", Client: "acme", Operation: "report", Count: 9,
		Last: at}, {Limit: "b", Client: "ip:192.0.2.1", Count: 2, Last: at}}}
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) { c.Operators.Shadows = noted }
	})
	for query, want := range map[string]string{"": "acme 9 ip:192.0.2.1 2 ",
		"?limit=b": "ip:192.0.2.1 2 ", "?limit=c": ""} {
		var got api.ShadowLimits
		strictly(t, query,
			w.Want(w.Call("GET", w.Admin+"/admin/v1/shadow-limits"+query, ""), 200).Text, &got)
		text := ""
		for _, r := range got.Refusals {
			text += fmt.Sprint(r.Client, " ", r.Count, " ")
			if !r.LastAt.Equal(at) {
				t.Errorf("last at %v", r.LastAt)
			}
		}
		if text != want {
			t.Errorf("%q: %s, want %s", query, text, want)
		}
	}
	for _, query := range []string{"?limits=a", "?limit=a&limit=b", "?limit=a;b", "?x"} {
		w.Problem(w.Call("GET", w.Admin+"/admin/v1/shadow-limits"+query, ""), http.StatusBadRequest,
			api.CodeInvalidRequest)
	}
	noted.err = errors.New("lost")
	w.Problem(w.Call("GET", w.Admin+"/admin/v1/shadow-limits", ""), http.StatusServiceUnavailable,
		api.CodeStore)
}
