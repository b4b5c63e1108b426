//go:build unix

package clients_test

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
		"no clients file":           {false, syscall.SIGHUP, `"signal":"hangup"`},
		"not the signal of reading": {true, syscall.SIGUSR1, "changes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := ""
			if c.file {
				path = newFile(t, "acme pro")
			}
			w, err := open(t, path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			signals, done := make(chan os.Signal, 1), make(chan struct{})
			go func() {
				defer close(done)
				w.Follow(ctx, signals)
			}()
			signals <- c.signal
			select {
			case <-w.log.written:
			case <-time.After(30 * time.Second):
				t.Fatal("the signal wasn't heard")
			}
			if said := w.log.take(); !strings.Contains(said, c.says) {
				t.Errorf("it said %s", said)
			}
			stop()
			<-done
		})
	}
}
