package testforebay

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/leaky"
)

// Eventually waits until is reports true, for up to 10 s.
func (w *World) Eventually(what string, is func() bool) {
	w.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			w.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// Lateness watches how late this machine is with everything, until worst is called: as much may a
// busy machine add to each answer.
func Lateness() (worst func() time.Duration) {
	stop, found := make(chan struct{}), make(chan time.Duration)
	go func() {
		const tick = 5 * time.Millisecond
		var late time.Duration
		for {
			began := time.Now()
			select {
			case <-stop:
				found <- late
				return
			case <-time.After(tick):
				late = max(late, time.Since(began)-tick)
			}
		}
	}()
	return func() time.Duration { close(stop); return <-found }
}

// Listen serves on a free port until the test ends.
func Listen(t *testing.T, s *http.Server) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// StoreState is a connection's health as a test sets it: a Store.
type StoreState struct {
	Down         atomic.Bool
	Full         atomic.Bool
	UnavailableC chan struct{} // closed while the store is unavailable; nil: it never is
	IsEmbedded   bool
	AllWarnings  []string
}

// Healthy is false while the store is down.
func (s *StoreState) Healthy() bool { return !s.Down.Load() }

// Since is never: the test says when.
func (s *StoreState) Since() time.Time { return time.Time{} }

// Writable is false while the store is full.
func (s *StoreState) Writable() bool { return !s.Full.Load() }

// Embedded is as set.
func (s *StoreState) Embedded() bool { return s.IsEmbedded }

// Warnings are as set.
func (s *StoreState) Warnings() []string { return s.AllWarnings }

// Unavailable is as set.
func (s *StoreState) Unavailable() <-chan struct{} { return s.UnavailableC }

// Buffer takes logs. The zero value is empty. Safe for concurrent use.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Noise is n bytes of which no piece is like another.
func Noise(n int, seed byte) []byte {
	body := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(body)
	return body
}

// Must is value, and panics where there is an error.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// MustRate parses a drain rate.
func MustRate(t testing.TB, text string) leaky.Rate {
	t.Helper()
	r, err := leaky.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
