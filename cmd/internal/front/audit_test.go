package front

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/cmd/internal/wire"
)

// Changes by operators are logged at every log level.
func TestAChangeIsOnRecordAtEveryLogLevel(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	if err := os.WriteFile(file, []byte(`
identity: {anonymous: free}
tiers: {free: {}}
backends: {reports: {url: "http://127.0.0.1:9", drain: {rate: 1/s}}}
operations: {report: {backend: reports, path: /}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log lines
	addr := freeAddress(t)
	ended := make(chan int, 1)
	go func() {
		args := []string{"-config", file, "-listen", "127.0.0.1:0", "-admin-listen", addr,
			"-log", "error"}
		none := func(string) (string, bool) { return "", false }
		ended <- Run(ctx, wire.Process{Args: args, Env: none, Stdout: io.Discard, Stderr: &log})
	}()
	tune := func() bool {
		r, _ := http.NewRequestWithContext(ctx, "PATCH",
			"http://"+addr+"/admin/v1/backends/reports", strings.NewReader(`{"rate":"2/s"}`))
		r.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(r)
		if err == nil {
			a.Body.Close()
		}
		return err == nil && a.StatusCode == 200
	}
	for deadline := time.Now().Add(20 * time.Second); !tune(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it didn't start:\n%s", log.String())
		}
	}
	changed := regexp.MustCompile(`"audit":true.*1/s → 2/s`)
	if text := log.String(); !changed.MatchString(text) || strings.Contains(text, "listening") {
		t.Errorf("log:\n%s", text)
	}
	stop()
	<-ended
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// freeAddress returns a loopback address on which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
