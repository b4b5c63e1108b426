package web

import (
	"net/http"
	"testing"
)

func TestTraceContextIsHandedOnWhereItIsWellFormed(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for given, want := range map[string]string{
		good: good, "": "",
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":   "",
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":   "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":   "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":   "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x": "",
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01":   "",
	} {
		if got := Traceparent(http.Header{"Traceparent": {given}}); got != want {
			t.Errorf("%q: %q", given, got)
		}
	}
	if got := Traceparent(http.Header{"Traceparent": {good, good}}); got != "" {
		t.Errorf("two: %q", got)
	}
}
