package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

// The hot paths, without the network in front: 64 callers at once, three limits in force, 256-byte
// payloads. Run with -benchmem; whole-system figures are in bench/.

func benchWorld(b *testing.B, limit int64) (*world, http.Handler) {
	w := newWorld(b, func(s *setup) {
		s.Line.Capacity = 10_000_000
		s.Line.MaxWait = 1000 * time.Hour
		s.Pro = []limits.Limit{perClient("a", limit, time.Hour),
			{Name: "b", Algorithm: limits.TokenBucket, Per: limits.PerClient, Amount: limit,
				Window: time.Hour}}
		s.Global = []limits.Limit{{Name: "c", Algorithm: limits.TokenBucket, Per: limits.PerIP,
			Amount: limit, Window: time.Hour}}
	})
	w.Server.Web.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	return w, w.Server.Public()
}

func ask(b *testing.B, h http.Handler, method, path, body string, want int) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+keyA)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	if answer.Code != want {
		b.Errorf("%d, want %d: %s", answer.Code, want, answer.Body)
	}
}

func parallel(b *testing.B, do func()) {
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			do()
		}
	})
}

func BenchmarkAccepted(b *testing.B) {
	w, h := benchWorld(b, 1_000_000_000)
	body := `{"operation":"` + w.Plain + `","payload":"` + strings.Repeat("x", 254) + `"}`
	parallel(b, func() { ask(b, h, "POST", "/v1/jobs", body, http.StatusAccepted) })
}

func BenchmarkRejected(b *testing.B) {
	w, h := benchWorld(b, 1)
	body := `{"operation":"` + w.Plain + `","payload":"` + strings.Repeat("x", 254) + `"}`
	ask(b, h, "POST", "/v1/jobs", body, http.StatusAccepted)
	parallel(b, func() { ask(b, h, "POST", "/v1/jobs", body, http.StatusTooManyRequests) })
}

func BenchmarkStatus(b *testing.B) {
	w, h := benchWorld(b, 1_000_000_000)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	parallel(b, func() { ask(b, h, "GET", "/v1/jobs/"+id, "", http.StatusOK) })
}

// always is a Health of which every backend is sick.
type always struct{}

func (always) Sick(string, float64) bool { return true }

func BenchmarkDegradedFromMemory(b *testing.B) {
	w := newWorld(b, func(s *setup) {
		s.Pro = []limits.Limit{perClient("a", 1_000_000_000, time.Hour),
			{Name: "b", Algorithm: limits.TokenBucket, Per: limits.PerClient, Amount: 1_000_000_000,
				Window: time.Hour}}
		s.Line.Capacity = 1
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			memory := cache.NewMemory(w.Cache, 0, w.Store.Healthy)
			b.Cleanup(memory.Close)
			c.Answers, c.Enter.Health = degrade.New(memory), always{}
			c.Operation(w.Shared).Overload.Sick = degrade.Sick{On: true, Below: 1}
		}
	})
	w.Server.Web.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	h := w.Server.Public()
	payload := `"` + strings.Repeat("x", 254) + `"`
	w.Remember(w.Shared, "", payload,
		cache.Answer{Status: 200, ContentType: "application/json", Body: []byte(payload),
			Age: time.Minute})
	w.Submit(w.Plain, `1`, key(keyA)) // the line is full: nothing is tried
	body := `{"operation":"` + w.Shared + `","payload":` + payload + `}`
	b.ResetTimer()
	parallel(b, func() { ask(b, h, "POST", "/v1/jobs", body, http.StatusOK) })
}
