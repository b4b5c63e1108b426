package httpapi

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/forebay/forebay/api"
)

const (
	// firstBuffer is what a body gets before any of it is there. It grows with what has come, so
	// that nobody holds memory by a Content-Length alone.
	firstBuffer = 16 << 10
	// wholeFrom is the part of a body of known length from which on it gets all of its memory: an
	// eighth. Each further step would copy what has come, into memory that is new to the process.
	wholeFrom = 8
	// slowGrace is what a body may take beyond its time at slowBody bytes a second: a lost packet or two.
	slowGrace = 5 * time.Second
	// slowBody is the least pace of a body in bytes per second, to us and from us. Modems were faster.
	slowBody = 1 << 10
)

// slowTime is how long the slowest client may take for some bytes.
func slowTime(bytes int) time.Duration {
	return slowGrace + time.Duration(bytes)*time.Second/slowBody
}

// bodies counts the bytes of all requests' bodies that are held in memory. The zero value has no
// bound. Safe for concurrent use.
type bodies struct {
	max  int64 // 0: no bound
	held atomic.Int64
}

// take reserves n bytes, where there is room.
func (b *bodies) take(n int64) bool {
	if b.held.Add(n) > b.max && b.max > 0 {
		b.held.Add(-n)
		return false
	}
	return true
}

// read returns a request's body, which must be JSON of at most limit bytes. It comes at slowBody
// bytes a second at least, or is cut. release gives back what is reserved for it, once, when nobody
// needs the body any more; it is never nil, also with an error.
func (b *bodies) read(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
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
	in, control, began := http.MaxBytesReader(w, r.Body, limit), http.NewResponseController(w), time.Now()
	for {
		if len(body) == cap(body) {
			// One more than the most, so that the body's end is seen without growing for it.
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
		end := began.Add(slowTime(len(body)))
		if last := began.Add(readTime); end.After(last) {
			end = last // the listener's own
		}
		_ = control.SetReadDeadline(end) // a writer of a test may know none
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
			return nil, release, problem(http.StatusRequestTimeout, api.CodeSlowBody,
				fmt.Sprintf("The body came slower than %d bytes a second, or took over %v.", slowBody, readTime))
		}
		return nil, release, invalidRequest("The body ended early.")
	}
}

func tooManyBodies() *api.Problem {
	p := problem(http.StatusServiceUnavailable, api.CodeBusy, "The service holds as many requests' bodies as it has memory for. Try again.")
	p.RetryAfter = 1 + rand.IntN(3) // bodies come and go in less; those who were refused together come back apart
	return p
}
