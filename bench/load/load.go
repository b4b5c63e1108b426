// Package load sends the same HTTP requests again and again on many keep-alive connections.
//
// It shares the machine with the server that it measures, so it is as lean as Go's sockets allow:
// requests are built beforehand, and answers are read without a header map or an allocation. Its
// cost is the same for every target. Ratios between targets are therefore fair, though a little
// closer to 1 than without it.
package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Target is a server, and the requests to send to it.
type Target struct {
	Addr     string
	Requests [][]byte // connection i sends Requests[i % len(Requests)] each time
	// With Rotate, connection i starts there and moves on by Conns, so that no request comes twice
	// in a round.
	Rotate bool
	Status int // the status of each answer; another one ends the run
}

// Plan is how often to send requests. Each connection sends its next request when the last one is
// answered.
type Plan struct {
	Conns    int
	Warmup   time.Duration // neither counted nor checked: a limit may still admit some
	Duration time.Duration // counted
	Count    int64         // if not 0: the number of requests, without warm-up or Duration
}

// Result sums up the answers.
type Result struct {
	Answers   int
	Elapsed   time.Duration
	Latencies []time.Duration // of the counted answers, sorted
}

// PerSecond returns the throughput, in answers per second.
func (r Result) PerSecond() float64 { return float64(r.Answers) / r.Elapsed.Seconds() }

// patience bounds the wait for one answer, so that a target that hangs doesn't hang the run.
const patience = 30 * time.Second

// Run executes a plan. An answer of another status, a broken connection and the end of ctx are
// errors.
func Run(ctx context.Context, t Target, p Plan) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conns := make([]*conn, p.Conns)
	for i := range conns {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Addr)
		if err != nil {
			return Result{}, fmt.Errorf("load: %w", err)
		}
		defer nc.Close()
		conns[i] = &conn{Conn: nc, requests: t.Requests, next: i % len(t.Requests),
			buf: make([]byte, 16<<10)}
		if t.Rotate {
			conns[i].step = p.Conns
		}
	}
	stop := context.AfterFunc(ctx, func() {
		for _, c := range conns {
			c.Close()
		}
	})
	defer stop()

	var left atomic.Int64
	left.Store(p.Count)
	began := time.Now()
	from := began.Add(p.Warmup)
	until := from.Add(p.Duration)
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			var err error
			if p.Count > 0 {
				err = c.repeat(t.Status, began, func(time.Time) bool { return left.Add(-1) >= 0 })
			} else {
				err = c.repeat(t.Status, from, func(now time.Time) bool {
					return now.Before(until)
				})
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return Result{}, fmt.Errorf("load on %s: %w", t.Addr, err)
	}
	result := Result{Elapsed: p.Duration}
	for _, c := range conns {
		result.Latencies = append(result.Latencies, c.latencies...)
	}
	if p.Count > 0 {
		result.Elapsed = time.Since(began)
	}
	result.Answers = len(result.Latencies)
	slices.Sort(result.Latencies)
	return result, nil
}

// conn is one keep-alive connection and the requests that it sends.
type conn struct {
	net.Conn
	requests  [][]byte
	next      int // index in requests
	step      int // from one request to the next
	latencies []time.Duration
	buf       []byte // buf[:n] was received and isn't part of an answer yet
	n         int
}

// repeat sends requests as long as more returns true for the time of the last answer. It counts and
// checks the answers that arrive at from or later.
func (c *conn) repeat(status int, from time.Time, more func(now time.Time) bool) error {
	now, extended := time.Now(), time.Time{}
	for more(now) {
		if now.Sub(extended) > patience/2 { // not each time, since it costs
			extended = now
			if err := c.SetDeadline(now.Add(patience)); err != nil {
				return err
			}
		}
		sent := now
		if _, err := c.Write(c.requests[c.next]); err != nil {
			return err
		}
		c.next = (c.next + c.step) % len(c.requests)
		got, body, err := c.answer()
		if err != nil {
			return err
		}
		now = time.Now()
		if now.Before(from) {
			continue
		}
		if got != status {
			return fmt.Errorf("answer %d, want %d: %s", got, status, body)
		}
		c.latencies = append(c.latencies, now.Sub(sent))
	}
	return nil
}

// maxAnswer bounds the size of one answer, in bytes.
const maxAnswer = 1 << 20

var errMalformed = errors.New("malformed HTTP answer")

// answer reads the next answer. The body is valid until the next call.
func (c *conn) answer() (status int, body []byte, err error) {
	for {
		status, body, size, err := parse(c.buf[:c.n])
		if err != nil {
			return 0, nil, err
		}
		if size > 0 {
			// A request has one answer, so nothing may follow it. The buffer starts anew, and the
			// body stays where it is.
			if size != c.n {
				return 0, nil, fmt.Errorf("%w: %d bytes after it", errMalformed, c.n-size)
			}
			c.n = 0
			return status, body, nil
		}
		if c.n == len(c.buf) {
			if c.n >= maxAnswer {
				return 0, nil, fmt.Errorf("%w: over %d bytes", errMalformed, maxAnswer)
			}
			c.buf = append(c.buf, make([]byte, len(c.buf))...)
		}
		n, err := c.Read(c.buf[c.n:])
		if err != nil {
			return 0, nil, err
		}
		c.n += n
	}
}

// parse reads an HTTP/1.1 answer at the start of data: its status, its body and its size. The size
// is 0 if the answer isn't complete.
func parse(data []byte) (status int, body []byte, size int, err error) {
	head := bytes.Index(data, []byte("\r\n\r\n"))
	if head < 0 {
		return 0, nil, 0, nil
	}
	line, fields, _ := bytes.Cut(data[:head], []byte("\r\n"))
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, nil, 0, fmt.Errorf("%w: %q", errMalformed, line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, 0, fmt.Errorf("%w: %q", errMalformed, line)
	}
	rest := data[head+4:]
	length, chunked := 0, false
	for len(fields) > 0 {
		var field []byte
		field, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		name, value, _ := bytes.Cut(field, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return 0, nil, 0, fmt.Errorf("%w: Content-Length %q", errMalformed, value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		case bytes.EqualFold(name, []byte("Connection")) && bytes.EqualFold(value, []byte("close")):
			return 0, nil, 0, fmt.Errorf("the server closes the connection after: %s", data)
		}
	}
	if chunked {
		// The last chunk is empty; no server here sends trailers. The body is only shown in errors,
		// so it keeps its chunk sizes.
		last := []byte("\r\n0\r\n\r\n")
		// The search starts at the head's own line end: the first chunk may be the last.
		end := bytes.Index(data[head+2:], last)
		if end < 0 {
			return 0, nil, 0, nil
		}
		return status, rest[:max(end-2, 0)], head + 2 + end + len(last), nil
	}
	if len(rest) < length {
		return 0, nil, 0, nil
	}
	return status, rest[:length], head + 4 + length, nil
}

// Request builds a request for a Target. Fields are "Name: value".
func Request(method, addr, path string, body []byte, fields ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, addr)
	for _, field := range fields {
		fmt.Fprintf(&b, "%s\r\n", field)
	}
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}
