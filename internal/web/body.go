package web

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/api"
)

const (
	// firstBuffer is a body's buffer before any of it has arrived. It grows with the body, so that
	// no client takes memory by a Content-Length alone.
	firstBuffer = 16 << 10
	// wholeFrom: a body of known length gets all of its memory once an eighth has arrived. Each
	// further step would copy that into new memory.
	wholeFrom = 8
	// slowGrace is how much longer a body may take than at slowBody bytes a second, for a lost
	// packet or two.
	slowGrace = 5 * time.Second
	// slowBody is the slowest permitted pace of a body in bytes per second, in both directions.
	// Modems were faster.
	slowBody = 1 << 10
)

// SlowTime returns how long a client may take to send or read so many bytes.
func SlowTime(bytes int) time.Duration {
	return slowGrace + time.Duration(bytes)*time.Second/slowBody
}

// Bodies reads requests' bodies and counts the bytes of those that are held in memory. The zero
// value has no bound. Safe for concurrent use.
type Bodies struct {
	Max  int64 // bytes that all bodies may take at one time; 0: any
	held atomic.Int64
}

// Held returns how many bytes are reserved now.
func (b *Bodies) Held() int64 { return b.held.Load() }

// take reserves n bytes, if there is room.
func (b *Bodies) take(n int64) bool {
	if b.held.Add(n) > b.Max && b.Max > 0 {
		b.held.Add(-n)
		return false
	}
	return true
}

// Read returns a request's body, which must be declared as JSON and have at most limit bytes. A
// body that arrives slower than 1 KiB a second is refused. release gives back the memory that is
// reserved for the body, and must be called when the body is no longer needed. It is never nil. An
// error is an *api.Problem.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request, limit int64) (
	body []byte, release func(), err error) {
	var reserved int64
	release = func() {
		b.held.Add(-reserved)
		reserved = 0
	}
	if err := checkMediaType(r.Header); err != nil {
		return nil, release, err
	}
	if r.ContentLength > limit {
		return nil, release, tooLarge(limit)
	}
	most := limit
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	in, control := http.MaxBytesReader(w, r.Body, limit), http.NewResponseController(w)
	began := time.Now()
	for {
		if len(body) == cap(body) {
			// One byte more than the most, so that the buffer needn't grow for the body's end.
			size := min(max(2*int64(cap(body)), firstBuffer), most+1)
			if r.ContentLength >= 0 && most < wholeFrom*int64(len(body)) {
				size = most + 1
			}
			if !b.take(size - reserved) {
				return nil, release, tooManyBodies()
			}
			reserved = size
			grown := make([]byte, len(body), size)
			copy(grown, body)
			body = grown
		}
		end := began.Add(SlowTime(len(body)))
		if last := began.Add(ReadTime); end.After(last) {
			end = last // the listener's own deadline
		}
		_ = control.SetReadDeadline(end) // a test's writer may have none
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		var over *http.MaxBytesError
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			_ = control.SetReadDeadline(time.Time{}) // it would end what waits for a job
			return body, release, nil
		case errors.As(err, &over):
			return nil, release, tooLarge(limit)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, release, Problem(http.StatusRequestTimeout, api.CodeSlowBody,
				fmt.Sprintf("The body came slower than %d bytes a second, or took over %v.",
					slowBody, ReadTime))
		}
		return nil, release, InvalidRequest("The body ended early.")
	}
}

func tooManyBodies() *api.Problem {
	p := Problem(http.StatusServiceUnavailable, api.CodeBusy,
		"The service holds as many requests' bodies as it has memory for. Try again.")
	// Most bodies are held for less. Clients that were refused together return at different times.
	p.RetryAfter = 1 + rand.IntN(3)
	return p
}

// ReadBody is Bodies.Read without counting the body. It is for operators' bodies, which are small
// and few.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, _, err := new(Bodies).Read(w, r, limit)
	return body, err
}

func tooLarge(limit int64) error {
	return Problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
		fmt.Sprintf("The body may have at most %d bytes.", limit))
}

func checkMediaType(h http.Header) error {
	coding, given := h.Get("Content-Encoding"), h.Get("Content-Type")
	plain := coding == "" || strings.EqualFold(coding, "identity")
	if plain && given == "application/json" {
		return nil
	}
	media, _, err := mime.ParseMediaType(given)
	if !plain || err != nil || media != "application/json" {
		return Problem(http.StatusUnsupportedMediaType, api.CodeMediaType,
			"Send JSON, with Content-Type: application/json and without Content-Encoding.")
	}
	return nil
}
