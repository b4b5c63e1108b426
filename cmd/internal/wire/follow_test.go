//go:build unix

package wire_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"forebay/cmd/internal/wire"
	"forebay/internal/config"
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

// A SIGHUP has the clients file read, and doesn't end the process.
func TestSIGHUPReadsTheClientsFileAgain(t *testing.T) {
	t.Parallel()
	survive := make(chan os.Signal, 1) // until Follow listens itself
	signal.Notify(survive, syscall.SIGHUP)
	defer signal.Stop(survive)

	c := config.Demo()
	c.Identity.ClientsFile = filepath.Join(t.TempDir(), "clients.yaml")
	if err := os.WriteFile(c.Identity.ClientsFile, []byte("clients: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &written{lines: make(chan struct{}, 1)}
	clients, err := wire.NewClients(c, os.LookupEnv, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		clients.Follow(ctx)
	}()
	again := time.NewTicker(10 * time.Millisecond) // the first may come before Follow listens
	defer again.Stop()
	for heard := false; !heard; {
		select {
		case <-again.C:
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		case <-out.lines:
			heard = true
		case <-ctx.Done():
			t.Fatal("no SIGHUP was heard")
		}
	}
	if !strings.Contains(out.String(), "clients file read") {
		t.Errorf("it said %s", out)
	}
	stop()
	<-done
}

// Without a clients file SIGHUP means what it always does: the terminal is gone, and the demo with it.
func TestWithoutAClientsFileNobodyListensForSIGHUP(t *testing.T) {
	t.Parallel()
	c := config.Demo()
	clients, err := wire.NewClients(c, os.LookupEnv, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	clients.Follow(t.Context()) // returns
}
