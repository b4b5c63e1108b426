package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a variable holds is text of one value: it can't close a quote, begin a key or add to a list.
func TestAVariableCanNotAddToTheConfig(t *testing.T) {
	t.Parallel()
	const nasty = `x", "a": ["b"], 'c': {d}, #`
	text := strings.Replace(minimal, "5/s}", "5/s}, headers:\n  {X-Quoted: \"${NASTY}\",\n "+
		"X-Single: '${NASTY}'}", 1)
	text += "shutdown: ${DURATION}\n"
	c, _, err := read("f", []byte(text), func(name string) (string, bool) {
		return map[string]string{"NASTY": nasty, "DURATION": "7s"}[name], true
	}, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if h := c.Backends["reports"].Headers; len(h) != 2 || h["X-Single"] != nasty ||
		h["X-Quoted"] != nasty || c.Shutdown != 7*time.Second {
		t.Errorf("got %q", []string{fmt.Sprint(len(h)), string(h["X-Single"]),
			string(h["X-Quoted"])})
	}
}
