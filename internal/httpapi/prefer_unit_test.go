package httpapi

import (
	"testing"
	"time"

	"github.com/forebay/forebay/internal/web"
)

func TestPreferredWaits(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]time.Duration{
		"wait=10": 10 * time.Second, "respond-async, wait=10": 10 * time.Second,
		"WAIT = 10 ;x=1": 10 * time.Second, `wait="5"`: 5 * time.Second,
		"wait=30": maxWait, "wait=31": maxWait, "wait=99999999999999999999999999": maxWait,
		"wait=3, wait=9": 3 * time.Second, `foo="a, wait=9", wait=3`: 3 * time.Second,
		"": 0, "wait": 0, "wait=": 0, "wait=0": 0, "wait=-1": 0, "wait=1.5": 0, "wait=1s": 0,
		"waiting=9": 0, "x;wait=9": 0, `"wait=9`: 0,
	} {
		if got := preferredWait([]string{given}); got != want {
			t.Errorf("%q: %v, want %v", given, got, want)
		}
	}
	if got := preferredWait([]string{"respond-async", "wait=2"}); got != 2*time.Second {
		t.Errorf("two lines: %v", got)
	}
}

func TestAStreamIsWantedWhereItIsNamedBest(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"text/event-stream": true, "TEXT/Event-Stream": true, "text/event-stream;q=0.5": true,
		"text/event-stream; charset=utf-8":          true,
		"text/event-stream, application/json;q=0.9": true,
		"application/json;q=0.9, text/event-stream": true, "text/event-stream, */*": true,
		"application/json, text/event-stream": true, "text/html, text/event-stream;q=0.2": true,
		"application/json;q=0.1, */*, text/event-stream;q=0.5": true,
		"text/event-stream;q=1.0":                              true,
		"text/event-stream;q=0.001":                            true,
		"":                                                     false, "*/*": false,
		"text/*": false, "application/json": false,
		"text/event-stream;q=0": false, "text/event-stream;q=0.000": false,
		"application/json, text/event-stream;q=0.9": false, "*/*, text/event-stream;q=0.9": false,
		"application/*;q=0.6, text/event-stream;q=0.5": false,
		"text/event-stream;q=x":                        false, "text/event-stream;q=": false,
		"text/event-stream;q=2": false, "text/event-stream;q=-1": false,
		"text/event-stream;q=NaN": false,
		`x="text/event-stream"`:   false, "text/event-streams": false, ",,;": false,
	} {
		if got := web.WantsStream([]string{accept}); got != want {
			t.Errorf("Accept: %s: %v, want %v", accept, got, want)
		}
	}
	if !web.WantsStream([]string{"application/json;q=0.5", "text/event-stream"}) {
		t.Error("the second line counts for nothing")
	}
}
