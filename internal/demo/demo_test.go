package demo_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay/forebay/internal/demo"
)

// call makes one call of the backend and returns its response and how long it took.
func call(b *demo.Backend, path string) (*httptest.ResponseRecorder, time.Duration) {
	began := time.Now()
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(`{"month":"2026-11"}`)))
	return w, time.Since(began)
}

func TestItServesThreeCallsInAnySecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := demo.New()
		var all sync.WaitGroup
		statuses := make([]int, 5)
		for i := range statuses {
			all.Go(func() {
				w, _ := call(b, "/report")
				statuses[i] = w.Code
			})
		}
		all.Wait()
		served := 0
		for _, s := range statuses {
			if s == http.StatusOK {
				served++
			} else if s != http.StatusServiceUnavailable {
				t.Errorf("status %d", s)
			}
		}
		if served != 3 {
			t.Fatalf("%d of 5 calls at once were served, want 3", served)
		}
		time.Sleep(time.Second)
		if w, took := call(b, "/report"); w.Code != http.StatusOK || took != 300*time.Millisecond {
			t.Fatalf("a second later: status %d after %s, want 200 after 300ms", w.Code, took)
		}
	})
}

func TestAThumbnailIsAPicture(t *testing.T) {
	t.Parallel()
	w, _ := call(demo.New(), "/thumbnail")
	if got := w.Header().Get("Content-Type"); got != "image/png" ||
		!strings.HasPrefix(w.Body.String(), "\x89PNG") {
		t.Fatalf("content type %q, body %.8q", got, w.Body.String())
	}
}
