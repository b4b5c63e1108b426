package admission

import (
	"strconv"
	"testing"
	"time"
)

func TestARefreshIsDueOnceInTenSeconds(t *testing.T) {
	t.Parallel()
	r := newRefreshes()
	now := time.Now()
	for _, step := range []struct {
		join  string
		after time.Duration
		want  bool
	}{{"a", 0, true}, {"a", 0, false}, {"b", 0, true}, {"a", 10*time.Second - time.Millisecond,
		false}, {"a", time.Millisecond, true}, {"a", 0, false}} {
		now = now.Add(step.after)
		if got := r.due(step.join, now); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
	for i := range maxRefreshed + 10 {
		r.due(strconv.Itoa(i), now)
	}
	if n := len(r.at); n > maxRefreshed {
		t.Errorf("%d are remembered", n)
	}
}
