// Package demo is a backend to try Forebay on: slow, and easily overloaded. Every call takes time,
// and more than a few calls in any second are refused with 503, as by an overloaded renderer.
package demo

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	callTime  = 300 * time.Millisecond
	perSecond = 3       // calls that it serves in any second
	maxBody   = 1 << 20 // bytes that it reads of a request: Forebay sends no more by default
)

// Backend renders reports (POST /report) and thumbnails (POST /thumbnail). It is safe for
// concurrent use.
type Backend struct {
	mux http.ServeMux

	mu     sync.Mutex
	recent []time.Time // guarded by mu: calls begun within the last second, at most perSecond
	calls  int         // guarded by mu: calls served
}

// New returns a Backend that has had no calls.
func New() *Backend {
	b := &Backend{}
	b.mux.HandleFunc("POST /report", b.fragile(b.report))
	b.mux.HandleFunc("POST /thumbnail", b.fragile(b.thumbnail))
	return b
}

// ServeHTTP answers one call.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// fragile refuses calls of render beyond perSecond in any second, and makes each call slow.
func (b *Backend) fragile(render func(w http.ResponseWriter, r *http.Request,
	call int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		call, ok := b.take(time.Now())
		if !ok {
			http.Error(w, "overloaded: more than 3 calls within a second",
				http.StatusServiceUnavailable)
			return
		}
		select {
		case <-time.After(callTime):
			render(w, r, call)
		case <-r.Context().Done():
		}
	}
}

// take counts a call, unless perSecond calls began within the second before now.
func (b *Backend) take(now time.Time) (call int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.recent) > 0 && now.Sub(b.recent[0]) >= time.Second {
		b.recent = b.recent[1:]
	}
	if len(b.recent) >= perSecond {
		return 0, false
	}
	b.recent = append(b.recent, now)
	b.calls++
	return b.calls, true
}

func (b *Backend) report(w http.ResponseWriter, r *http.Request, call int) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		http.Error(w, "cannot read the request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{
		"report":      "demo",
		"input":       json.RawMessage(body),
		"rendered_at": time.Now().UTC().Format(time.RFC3339Nano),
		"call":        call,
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		// The input wasn't JSON. Nothing has been written yet.
		http.Error(w, "the payload isn't JSON", http.StatusUnprocessableEntity)
	}
}

// thumbnail answers with a PNG whose color differs between calls.
func (b *Backend) thumbnail(w http.ResponseWriter, _ *http.Request, call int) {
	img := image.NewRGBA(image.Rect(0, 0, 32, 32))
	for x := range 32 {
		for y := range 32 {
			img.Set(x, y, color.RGBA{R: uint8(call * 40), G: uint8(x * 8), B: uint8(y * 8), A: 255})
		}
	}
	w.Header().Set("Content-Type", "image/png")
	if err := png.Encode(w, img); err != nil {
		http.Error(w, fmt.Sprintf("cannot encode: %v", err), http.StatusInternalServerError)
	}
}
