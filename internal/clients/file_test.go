package clients_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/clients"
)

// tiers are a test's set of clients: the tier of each by name.
type tiers map[string]string

// parse reads a file of lines "name tier", and has beside them the client fixed.
func parse(text []byte, was *tiers) (*tiers, clients.Changes, error) {
	set := tiers{"fixed": "pro"}
	for line := range strings.Lines(string(text)) {
		name, tier, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return nil, clients.Changes{}, fmt.Errorf("no tier in %q", line)
		}
		set[name] = tier
	}
	if len(text) == 0 {
		return nil, clients.Changes{}, errors.New("the file is empty")
	}
	if was == nil {
		was = &tiers{}
	}
	return &set, clients.Compare(*was, set), nil
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // has room for one: gets one if it is empty
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() {
		select {
		case b.written <- struct{}{}:
		default:
		}
	}()
	return b.text.Write(p)
}

// take returns what was written since it was last called.
func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// watched is a file that a test edits. Nothing waits for a clock: the file is looked at when the
// test says so.
type watched struct {
	*clients.File[tiers]
	t       *testing.T
	log     *logBuffer
	metrics *prometheus.Registry
	tick    chan time.Time
	signals chan os.Signal
	end     func() // see begin
}

// open reads a file ("": there is none).
func open(t *testing.T, path string) (*watched, error) {
	t.Helper()
	w := &watched{t: t, log: &logBuffer{written: make(chan struct{}, 1)},
		metrics: prometheus.NewRegistry(),
		tick:    make(chan time.Time), signals: make(chan os.Signal)}
	read := parse
	if path == "" {
		read = func(text []byte, _ *tiers) (*tiers, clients.Changes, error) {
			if text != nil {
				t.Errorf("a file that isn't there has the text %q", text)
			}
			return &tiers{"fixed": "pro"}, clients.Changes{}, nil
		}
	}
	var err error
	w.File, err = clients.Open(clients.Config[tiers]{Path: path, MaxSize: 100, Read: read,
		Metrics: w.metrics, Log: slog.New(slog.NewJSONHandler(w.log, nil))})
	return w, err
}

// watch opens a file and watches it until the test ends.
func watch(t *testing.T, path string) *watched {
	t.Helper()
	w, err := open(t, path)
	if err != nil {
		t.Fatal(err)
	}
	w.begin()
	t.Cleanup(func() { w.end() })
	return w
}

// begin watches the file until end is called, which returns when nothing looks at the file any
// more.
func (w *watched) begin() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Watch(ctx, w.tick, w.signals)
	}()
	w.end = func() { stop(); <-done }
}

// look has the file looked at, and returns when that is over.
func (w *watched) look() {
	w.tick <- time.Time{}
	w.end()
	w.begin()
}

// hangUp is a SIGHUP, and returns when it was obeyed.
func (w *watched) hangUp() {
	w.signals <- syscall.SIGHUP
	w.end()
	w.begin()
}

// tier is that of a client in force.
func (w *watched) tier(name string) string { return (*w.Current())[name] }

// metric is the value of a metric, or of the one of its family with a label value.
func (w *watched) metric(name, label string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	w.t.Fatalf("no metric %s %s", name, label)
	return 0
}

// counted checks the file's metrics.
func (w *watched) counted(ok, failed, good float64) {
	w.t.Helper()
	const reloads = "forebay_clients_reloads_total"
	got := [3]float64{w.metric(reloads, "ok"), w.metric(reloads, "failed"),
		w.metric("forebay_clients_file_ok", "")}
	if want := [3]float64{ok, failed, good}; got != want {
		w.t.Errorf("metrics say ok, failed, file ok are %v, want %v", got, want)
	}
}

// said checks that the log has one new line, with a part.
func (w *watched) said(about, part string) {
	w.t.Helper()
	if said := w.log.take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, part) {
		w.t.Errorf("of %s the log says %q, want one line with %s", about, said, part)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// setTime sets the time that the file system has for a file.
func setTime(t *testing.T, file string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// newFile writes a clients file.
func newFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clients.yaml")
	write(t, file, text)
	return file
}

// The whole story of a clients file: read at the start, edited, broken, mended.
func TestClientsComeAndGoWithTheirFile(t *testing.T) {
	t.Parallel()
	file := newFile(t, "acme pro\nglobex free\n")
	w := watch(t, file)
	holds := func(about string, want tiers) {
		t.Helper()
		want["fixed"] = "pro"
		if got := *w.Current(); !maps.Equal(got, want) {
			t.Errorf("%s: in force are %v, want %v", about, got, want)
		}
	}
	holds("at the start", tiers{"acme": "pro", "globex": "free"})
	w.look()
	if said := w.log.take(); said != "" {
		t.Errorf("without a change the log says %s", said)
	}
	w.counted(0, 0, 1)

	write(t, file, "acme free\ninitech pro\n")
	w.look()
	holds("edited", tiers{"acme": "free", "initech": "pro"})
	w.said("the edit", `"level":"INFO","msg":"clients file read","file":"`+file+
		`","clients":3,"added":1,"removed":1,"changed":1}`)
	w.counted(1, 0, 1)

	write(t, file, "acme pro\nhooli\n")
	w.look()
	w.look()
	holds("broken", tiers{"acme": "free", "initech": "pro"})
	w.said("the broken file",
		`"level":"ERROR","msg":"clients file refused: the clients stay as they were","file":"`+file+
			`","error":"no tier in`)
	w.counted(1, 1, 0)

	write(t, file, "acme pro\nhooli pro\n")
	w.look()
	holds("mended", tiers{"acme": "pro", "hooli": "pro"})
	w.counted(2, 1, 1)
}

func TestAClientsFileThatVanishesLeavesTheClientsAsTheyAre(t *testing.T) {
	t.Parallel()
	file := newFile(t, "acme pro")
	w := watch(t, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.look()
	w.said("the missing file", "identity.clients_file: open "+file+": no such file")
	w.counted(0, 1, 0)
	write(t, file, "") // as an editor leaves it for a moment
	w.look()
	w.said("the empty file", "the file is empty")
	if w.tier("acme") != "pro" {
		t.Error("an empty file took the clients away")
	}
	w.counted(0, 2, 0)
	write(t, file, "acme pro")
	w.look()
	w.said("the file that came back", `"added":0,"removed":0,"changed":0`)
	w.counted(1, 2, 1)
}

func TestSIGHUPReadsTheClientsFileWhateverItsTimeSays(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-time.Hour)
	file := newFile(t, "acme pro ")
	setTime(t, file, old)
	w := watch(t, file)
	write(t, file, "acme free")
	setTime(t, file, old)
	w.look()
	if w.tier("acme") != "pro" {
		t.Fatal("the file was read although it seemed unchanged: then the rest proves nothing")
	}
	w.hangUp()
	if w.tier("acme") != "free" {
		t.Error("SIGHUP didn't have the file read")
	}
	w.counted(1, 0, 1)

	// Each SIGHUP gets a line, though nothing changed, and as often as the file is broken.
	w.log.take()
	w.hangUp()
	w.said("a SIGHUP without a change", `"changed":0`)
	write(t, file, "none")
	w.hangUp()
	w.said("a SIGHUP with a broken file", "no tier in")
	w.hangUp()
	w.said("another one", "no tier in")
	w.counted(2, 2, 0)
}

// Kubernetes mounts a file as a link to a link to a directory, and swaps the middle one.
func TestASwappedLinkIsSeen(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), time.Now().Add(-time.Hour)
	// The files are of one length and one time.
	for version, tier := range map[string]string{"v1": "pro ", "v2": "free"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, version, "clients.yaml")
		write(t, at, "acme "+tier)
		setTime(t, at, old)
	}
	link := func(to, at string) {
		if err := os.Symlink(to, at+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "clients.yaml")
	link("v1", filepath.Join(dir, "data"))
	link(filepath.Join("data", "clients.yaml"), file)
	w := watch(t, file)
	if w.tier("acme") != "pro" {
		t.Fatal("the file isn't read through its links")
	}
	link("v2", filepath.Join(dir, "data"))
	w.look()
	if w.tier("acme") != "free" {
		t.Error("the swapped link wasn't seen")
	}
}

// Times of files are coarse: a file that is written twice within one tick has the same time.
func TestAFileThatWasJustWrittenIsReadAgain(t *testing.T) {
	t.Parallel()
	file := newFile(t, "acme pro ")
	w := watch(t, file)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, "acme free")
	setTime(t, file, info.ModTime())
	w.look()
	if w.tier("acme") != "free" {
		t.Error("a second edit within the file system's tick wasn't seen")
	}
}

// Of a file that is too large, Read sees that it is, and no more.
func TestALargeFileIsReadAsFarAsToRefuseIt(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{99: 99, 100: 100, 101: 101, 5000: 101} {
		file := newFile(t, strings.Repeat("x", size))
		refused := errors.New("refused")
		read := func(text []byte, _ *tiers) (*tiers, clients.Changes, error) {
			if len(text) != want {
				t.Errorf("of %d bytes %d are read, want %d", size, len(text), want)
			}
			return nil, clients.Changes{}, refused
		}
		_, err := clients.Open(clients.Config[tiers]{Path: file, MaxSize: 100, Read: read,
			Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, refused) {
			t.Errorf("a file that is refused at the start: %v", err)
		}
	}
}

func TestAMissingFileIsAnErrorOfTheStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "clients.yaml")
	_, err := open(t, file)
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("it says %v", err)
	}
	if text := err.Error(); !strings.HasPrefix(text, "identity.clients_file: ") {
		t.Errorf("it says %s", text)
	}
}

func TestWithoutAClientsFileThereAreNoMetricsOfIt(t *testing.T) {
	t.Parallel()
	w := watch(t, "")
	w.look()
	if w.tier("fixed") != "pro" {
		t.Error("the config's clients aren't in force")
	}
	if families, _ := w.metrics.Gather(); len(families) > 0 {
		t.Errorf("metrics of a file that isn't there: %v", families)
	}
}

// What sees the set while files are read sees one file whole.
func TestReadersSeeOneFileWhole(t *testing.T) {
	t.Parallel()
	files := []string{"acme pro\nglobex pro\n", "acme free\nglobex free\n"}
	file := newFile(t, files[0])
	w := watch(t, file)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if set := *w.Current(); set["acme"] == "" || set["acme"] != set["globex"] {
					t.Errorf("in between it is %v", set)
					return
				}
			}
		})
	}
	for n := range 50 {
		write(t, file, files[n%2])
		w.hangUp()
	}
	close(stop)
	asking.Wait()
}
