package httpapi_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/testforebay"
)

// peeks counts how often the limits are read.
type peeks struct {
	admission.Limiter
	n atomic.Int64
}

func (p *peeks) Peek(ctx context.Context, r limits.Request) (limits.Verdict, error) {
	p.n.Add(1)
	return p.Limiter.Peek(ctx, r)
}

// A client's use is in the next answer's fields, though the limits aren't read for it.
func TestTheFieldsKnowOfTheCallersOwnRequests(t *testing.T) {
	t.Parallel()
	counting := &peeks{}
	w := newWorld(t, func(s *setup) {
		s.Pro = append(s.Pro, perClient("many", 1000, time.Hour))
		s.Report = append(s.Report, perClient("reports", 500, time.Hour))
		s.Limiter = func(l admission.Limiter) admission.Limiter {
			counting.Limiter = l
			return counting
		}
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Shared).Overload.FreshFor = time.Hour
		}
	})
	w.Remember(w.Shared, "", `1`, cache.Answer{Status: 200, Body: []byte("fresh")})
	left := 1000
	check := func(a answer) {
		t.Helper()
		if got := w.stated(a)["many"].r; got != int64(left) {
			t.Fatalf("%d left, want %d", got, left)
		}
	}
	id := ""
	for i := range 30 {
		operation := []string{w.Report, w.Plain}[i%2]
		a := w.Want(w.Submit(operation, `1`, key(keyA)), http.StatusAccepted)
		left--
		check(a)
		id = w.Job(a).ID
		check(w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200))
		check(w.Want(w.Submit(w.Shared, `1`, key(keyA)), 200))
		check(w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200))
	}
	// The limits are read if the recent limits are too old, which may happen on a slow machine.
	if n := counting.n.Load(); n > 30 {
		t.Errorf("the limits were read %d times for 90 answers", n)
	}
	// A request for the limits themselves gets them as they stand.
	before := counting.n.Load()
	for range 3 {
		w.rateLimits(key(keyA))
	}
	if n := counting.n.Load() - before; n < 3 {
		t.Errorf("the limits were read %d times for 3 lists of them", n)
	}
}

// The use through another process is in the fields a moment later.
func TestTheFieldsAreNeverLongBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Pro = append(s.Pro, perClient("many", 1000, time.Hour)) })
	_, another, _ := w.Serve()
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)).ID
	for range 3 {
		w.Want(w.Call("POST", another+"/v1/jobs", `{"operation":"`+w.Plain+`","payload":1}`,
			key(keyA)), http.StatusAccepted)
	}
	w.Eventually("the other process's requests are told", func() bool {
		return w.Get("/v1/jobs/"+id, key(keyA)).Header.Get("X-RateLimit-Remaining") == "996"
	})
}

// A refund is in the fields too.
func TestTheFieldsKnowOfRefunds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Line.Capacity = 1
		s.Pro = append(s.Pro, perClient("many", 1000, time.Hour))
	})
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)).ID
	for range 20 {
		w.says(w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusTooManyRequests),
			map[string]string{"X-RateLimit-Remaining": "999"})
		w.says(w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200),
			map[string]string{"X-RateLimit-Remaining": "999"})
	}
}
