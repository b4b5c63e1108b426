//go:build unix

package wire_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/config"
)

// written is a log that tells of each line.
type written struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan struct{}
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		select {
		case w.lines <- struct{}{}:
		default:
		}
	}()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// A SIGHUP has the clients file read. Without such a file it is logged and does nothing, and so are
// the signals that log rotation uses (N43).
func TestSignalsThatDontEndTheProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file   bool
		signal os.Signal
		says   string
	}{
		"a clients file":            {true, syscall.SIGHUP, "clients file read"},
		"no clients file":           {false, syscall.SIGHUP, "signal=hangup"},
		"not the signal of reading": {true, syscall.SIGUSR1, "changes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := config.Demo()
			if c.file {
				conf.Identity.ClientsFile = filepath.Join(t.TempDir(), "clients.yaml")
				if err := os.WriteFile(conf.Identity.ClientsFile, []byte("clients: []"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out := &written{lines: make(chan struct{}, 1)}
			clients, err := wire.NewClients(conf, os.LookupEnv, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(out, nil)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			told, done := make(chan os.Signal, 1), make(chan struct{})
			go func() {
				defer close(done)
				clients.Follow(ctx, told)
			}()
			told <- c.signal
			select {
			case <-out.lines:
			case <-time.After(30 * time.Second):
				t.Fatal("the signal wasn't heard")
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("it said %s", out)
			}
			stop()
			<-done
		})
	}
}
