package web

import (
	"testing"
	"time"
)

// A flood of refusals is counted whole and logged in part.
func TestAFloodDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	var log AtMost
	now := time.Now()
	for second := range 2 {
		logged := 0
		for range 10 * maxLogged {
			if log.Allow(now.Add(time.Duration(second) * time.Second)) {
				logged++
			}
		}
		if logged != maxLogged {
			t.Errorf("second %d: %d of %d refusals are logged, want %d",
				second, logged, 10*maxLogged, maxLogged)
		}
	}
}
