package limits

import (
	"errors"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// A refund that never reached Redis can be tried again. One that may have isn't carried out twice.
func TestARefundThatWasNotAskedCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	each(t, 10, MaxWindow, func(t *testing.T, r *Rule) {
		l := newLimiter(&script{rdb: server.Client(t), slack: keySlack}, false, patience)
		v := decide(t, l, request(4, r))
		server.Kill()
		within(t, func() bool { return errors.Is(l.Refund(t.Context(), v), ErrNotAsked) })
		server.Restart()
		within(t, func() bool { return l.Refund(t.Context(), v) == nil })
		if err := l.Refund(t.Context(), v); err != nil {
			t.Error(err)
		}
		within(t, func() bool {
			v, err := l.Peek(t.Context(), request(1, r))
			return err == nil && v.Standings[0].Remaining == 10
		})
	})
	late := &script{rdb: server.Client(t), slack: keySlack}
	answers, _ := late.decide(t.Context(),
		[]*question{{mode: spend, by: time.Now().Add(-time.Second)}})
	if !errors.Is(answers[0].err, ErrNotAsked) {
		t.Errorf("a question whose time was over: %v", answers[0].err)
	}
}
