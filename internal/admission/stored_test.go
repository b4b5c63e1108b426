package admission

import (
	"testing"
	"time"
)

// A sick backend is tried now and then, even where all that is asked of it has a stale answer.
func TestASickBackendIsTriedNowAndThen(t *testing.T) {
	t.Parallel()
	var tried trials
	now := time.Now()
	for _, step := range []struct {
		after time.Duration
		sick  bool
		want  bool
	}{
		{0, false, false}, {time.Hour, true, false}, {time.Second, true, false},
		{4 * time.Second, true, true}, {0, true, false},
		{trialRest, true, true}, {trialRest, false, false}, {trialRest, true, false},
		{trialRest, true, true},
	} {
		now = now.Add(step.after)
		if got := tried.due("o", step.sick, now); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
}
