package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// C16: no rate is zero, negative or not a number.
func TestRatesAreANumberPerUnit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"5/s", "0.2/s", "6/m", "1/h", "100/d", "unlimited", "100000/s", "6000000/m", "1/d", "0.034/d"} {
		if err := checkRate(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "5", "/s", "5/", "0/s", "0.0/m", "-1/s", "+1/s", "NaN/s", "inf/s", "1e3/s", "0x5/s", "5/S", "5/sec", "5 /s", "5/s ", "1_000/s",
		"100001/s", "6000061/m", "0.033/d", "0.00000000000000000000001/s", strings.Repeat("9", 400) + "/s", "Unlimited", "5/s/s", ".5/s", "5./s"} {
		if err := checkRate(text); err == nil {
			t.Errorf("%.30q was accepted", text)
		}
	}
}

// What a variable holds is text of one value: it can't close a quote, begin a key or add to a list.
func TestAVariableCanNotAddToTheConfig(t *testing.T) {
	t.Parallel()
	const nasty = `x", "a": ["b"], 'c': {d}, #`
	text := strings.Replace(minimal, "5/s}", "5/s}, headers:\n  {X-Quoted: \"${NASTY}\",\n X-Single: '${NASTY}'}", 1)
	text += "shutdown: ${DURATION}\n"
	c, _, err := read("f", []byte(text), func(name string) (string, bool) {
		return map[string]string{"NASTY": nasty, "DURATION": "7s"}[name], true
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h := c.Backends["reports"].Headers; len(h) != 2 || h["X-Single"] != nasty || h["X-Quoted"] != nasty || c.Shutdown != 7*time.Second {
		t.Errorf("got %q", []string{fmt.Sprint(len(h)), string(h["X-Single"]), string(h["X-Quoted"])})
	}
}
