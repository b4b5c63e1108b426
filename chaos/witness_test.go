package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	// maxReported bounds the failures that are written out: thousands of one kind say no more.
	maxReported = 20
	// tailLines is how many lines of all processes' logs a failure shows; maxLine cuts a line of
	// them.
	tailLines = 40
	maxLine   = 500
)

// witness is a test that remembers the first broken promise. It is safe for concurrent use.
type witness struct {
	*testing.T

	mu    sync.Mutex
	first string // guarded by mu
	n     int    // guarded by mu
}

// note records a failure and reports whether it is still written out.
func (w *witness) note(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, _, _ := strings.Cut(text, "\n")
	w.first = cmp.Or(w.first, line)
	w.n++
	return w.n <= maxReported
}

func (w *witness) Errorf(format string, args ...any) {
	w.Helper()
	if text := fmt.Sprintf(format, args...); w.note(text) {
		w.T.Error(text)
	} else {
		w.Fail()
	}
}

func (w *witness) Fatalf(format string, args ...any) {
	w.Helper()
	text := fmt.Sprintf(format, args...)
	w.note(text)
	w.T.Fatal(text)
}

func (w *witness) Error(args ...any) { w.Helper(); w.Errorf("%s", fmt.Sprint(args...)) }
func (w *witness) Fatal(args ...any) { w.Helper(); w.Fatalf("%s", fmt.Sprint(args...)) }

// broken returns the last line of a run that failed: the first broken promise, how many more were
// broken, and how to repeat the run.
func (w *witness) broken(seed uint64, seconds int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	more := ""
	if w.n > 1 {
		more = fmt.Sprintf(" (and %d more)", w.n-1)
	}
	return fmt.Sprintf("chaos: broken: %s%s; seed %d; "+
		"repeat: make chaos CHAOS_SEED=%d CHAOS_SECONDS=%d",
		cmp.Or(w.first, "see above"), more, seed, seed, seconds)
}

// logs shows the end of each process's log after a failure, and keeps the logs in files.
func (w *world) logs() {
	dir, err := os.MkdirTemp("", fmt.Sprintf("forebay-chaos-%d-", w.seed))
	if err != nil {
		w.t.Logf("the logs can't be kept: %v", err)
		return
	}
	w.t.Logf("the whole logs are in %s; they end with:", dir)
	for _, s := range w.sites {
		for i, p := range s.all {
			text := p.log.all()
			if err := os.WriteFile(filepath.Join(dir, p.name+".log"), text, 0o600); err != nil {
				w.t.Logf("%s: %v", p.name, err)
			}
			if i == len(s.all)-1 {
				w.t.Logf("%s:\n%s", p.name, tail(text, tailLines/(len(apis)+len(workers))-1))
			}
		}
	}
}

// tail returns the last lines of a text, each cut to maxLine bytes.
func tail(text []byte, lines int) string {
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var out strings.Builder
	for _, line := range all[max(0, len(all)-lines):] {
		fmt.Fprintf(&out, "%s\n", line[:min(len(line), maxLine)])
	}
	return out.String()
}

// The last line of a failed run is enough to repeat it, however many promises it broke.
func TestARedRunNamesItself(t *testing.T) {
	t.Parallel()
	w := &witness{T: t}
	for i := range 3 {
		w.note(fmt.Sprintf("promise %d\nand its details", i))
	}
	const want = "chaos: broken: promise 0 (and 2 more); seed 7; " +
		"repeat: make chaos CHAOS_SEED=7 CHAOS_SECONDS=15"
	if got := w.broken(7, 15); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i := range 2 * maxReported {
		if w.note("") != (i+3 < maxReported) {
			t.Errorf("failure %d", i)
		}
	}
	long := bytes.Repeat([]byte(strings.Repeat("x", 2*maxLine)+"\n"), 100)
	if got := tail(long, 7); got != strings.Repeat(strings.Repeat("x", maxLine)+"\n", 7) {
		t.Errorf("a tail of %d bytes", len(got))
	}
}
