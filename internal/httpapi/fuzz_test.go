package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/web"
)

func FuzzSubmission(f *testing.F) {
	for _, seed := range []string{`{"operation":"a","payload":1}`,
		`{"operation":"a","payload":{"x":"\ud800"},"priority":"low","start_within":"90s"}`,
		`{"operation":"a","payload":null,"start_within":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		sub, err := parseSubmission(body)
		if err != nil {
			return
		}
		if !bytes.Contains(body, sub.payload) || !json.Valid(sub.payload) ||
			sub.priority.Weight() == 0 || sub.startWithin < 0 ||
			sub.startWithin > 0 && sub.startWithin < time.Millisecond {
			t.Fatalf("%q: %+v", body, sub)
		}
	})
}

// Every key that is read has its bounds, and one quoted spelling that is the same key.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{`a`, `"a"`, `"a\"b"`, `"`, ``, `8e03978e-40d5`, `a b`, `"a b"`,
		`"a";x`, strings.Repeat("x", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, ok := parseIdempotencyKey(line)
		if !ok {
			return
		}
		visible := strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) < 0
		if key == "" || len(key) > maxIdempotencyKey || !visible {
			t.Fatalf("%q: %q", line, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, ok := parseIdempotencyKey(quoted); !ok || again != key {
			t.Fatalf("%q: %q, but %q: %q, %v", line, key, quoted, again, ok)
		}
	})
}

func FuzzPrefer(f *testing.F) {
	for _, seed := range []string{`wait=10`, `respond-async, wait=10`, `wait="5"; a=b`,
		`a="\",wait=1", wait=2`, `wait=99999999999999999999`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		wait := preferredWait([]string{line})
		if wait < 0 || wait > maxWait || wait%time.Second != 0 {
			t.Fatalf("%q: %v", line, wait)
		}
	})
}

func FuzzAccept(f *testing.F) {
	for _, seed := range []string{`text/event-stream`, `text/event-stream;q=0.5, */*;q=0.1`,
		`a;b="text/event-stream, x";q=1`, `text/event-stream;q=1e-3`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if web.WantsStream([]string{line}) &&
			!strings.Contains(strings.ToLower(line), "text/event-stream") {
			t.Fatalf("%q: a stream that nobody named", line)
		}
		if q := web.Quality([]string{line}, "text/event-stream", "*/*"); q < 0 || q > 1000 {
			t.Fatalf("%q: %d", line, q)
		}
	})
}
