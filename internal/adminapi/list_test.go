package adminapi_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
)

// heldList has lists wait until they are let go.
type heldList struct {
	testforebay.Line
	reading atomic.Int64
	most    atomic.Int64
	release chan struct{}
}

func (l *heldList) List(ctx context.Context, f leaky.ListFilter) (leaky.Page, error) {
	n := l.reading.Add(1)
	defer l.reading.Add(-1)
	for most := l.most.Load(); n > most && !l.most.CompareAndSwap(most, n); most = l.most.Load() {
	}
	<-l.release
	return l.Line.List(context.WithoutCancel(ctx), f)
}

// Of all operators one list is read at a time. The next waits for it a while, and is refused then.
func TestOperatorsHaveOneListAtATime(t *testing.T) {
	t.Parallel()
	line := &heldList{release: make(chan struct{})}
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { line.Line = l; return line }
	})
	answers := make(chan answer, 2)
	list := func() answer { return w.AdminCall("GET", "jobs") }
	go func() { answers <- list() }()
	w.Eventually("a list is read", func() bool { return line.reading.Load() == 1 })
	a := list()
	if p := w.Problem(a, http.StatusTooManyRequests, api.CodeTooManyLists); p.RetryAfter != 1 ||
		a.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v", p)
	}
	go func() { answers <- list() }()
	w.Eventually("the second waits", func() bool { return w.Operators.ListReaders() == 2 })
	close(line.release)
	for range 2 {
		w.Want(<-answers, 200)
	}
	if got := line.most.Load(); got != 1 {
		t.Errorf("%d lists were read at once", got)
	}
}
