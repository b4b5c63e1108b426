package httpapi

import (
	"testing"
	"time"
)

func TestTheOldestAgeIsForgottenAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	var o oldest
	now := time.Now()
	if o.age(now) != 0 {
		t.Error("older than nothing")
	}
	o.note(time.Hour, now)
	o.note(time.Minute, now)
	now = now.Add(2 * time.Minute)
	o.note(2*time.Hour, now)
	o.note(3*time.Minute, now.Add(2*time.Minute))
	for after, want := range map[time.Duration]time.Duration{
		0: 2 * time.Hour, 4*time.Minute + 40*time.Second: 2 * time.Hour,
		5*time.Minute + 10*time.Second: 3 * time.Minute, 8 * time.Minute: 0,
	} {
		if got := o.age(now.Add(after)); got != want {
			t.Errorf("%s later: %s, want %s", after, got, want)
		}
	}
}
