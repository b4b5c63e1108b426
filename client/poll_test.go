package client

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
)

// polling makes c poll, as after streams that didn't get through.
func polling(c *Client) *Client {
	c.streamsFrom.Store(math.MaxInt64)
	return c
}

// holding returns a stub that holds each status back for the wait that the request prefers. From
// the n-th request on, the job is done.
func holding(after int) *stub {
	return &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
		if n >= after {
			return reply(200, done("reports-1")), nil
		}
		prefer := strings.TrimPrefix(r.Header.Get("Prefer"), "wait=")
		if wait, err := time.ParseDuration(prefer + "s"); err == nil {
			time.Sleep(wait)
		}
		return reply(200, queued("reports-1"), "Retry-After: 9"), nil
	}}
}

func TestAWaitIsHeldBackByTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := holding(4)
		began := time.Now()
		// MaxElapsed doesn't bound a Wait.
		c := polling(over(t, s, Config{MaxElapsed: time.Second}))
		job, err := c.Wait(ctx, "reports-1")
		if err != nil || !job.Done || len(s.seen) != 4 || time.Since(began) != 90*time.Second {
			t.Errorf("%d requests within %v: %v", len(s.seen), time.Since(began), err)
		}
		for _, r := range s.seen {
			if r.Header.Get("Prefer") != "wait=30" {
				t.Errorf("Prefer: %s", r.Header.Get("Prefer"))
			}
		}
	})
}

// If a server can hold no more answers back, the client asks again without a wait, at the server's
// pace.
func TestAWaitThatIsRefusedIsAPoll(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			switch {
			case n == 4:
				return reply(200, done("reports-1")), nil
			case r.Header.Get("Prefer") != "":
				return refuse(429, api.CodeTooManyStreams, "15"), nil
			}
			return reply(200, queued("reports-1"), "Retry-After: 9"), nil
		}}
		began := time.Now()
		job, err := polling(over(t, s, Config{MaxAttempts: 1})).Wait(ctx, "reports-1")
		if err != nil || !job.Done || len(s.seen) != 4 {
			t.Fatalf("%d requests: %v", len(s.seen), err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 10*time.Second {
			t.Errorf("the second status came after %v, want the server's 9 s", took)
		}
	})
}

// If a proxy or a full server doesn't hold answers back, the server sets the pace.
func TestAWaitWithoutHoldingPollsAtTheServersPace(t *testing.T) {
	t.Parallel()
	for after, most := range map[string]time.Duration{"9": 9900 * time.Millisecond,
		"": DefaultCap} {
		t.Run("Retry-After "+after, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := &stub{answer: func(n int, _ *http.Request) (*http.Response, error) {
					if n == 40 {
						return reply(200, done("reports-1")), nil
					}
					r := reply(200, queued("reports-1"))
					if after != "" {
						r.Header.Set("Retry-After", after)
					}
					return r, nil
				}}
				job, err := polling(over(t, s, Config{})).Wait(ctx, "reports-1")
				if err != nil || !job.Done {
					t.Fatal(err)
				}
				asked, _ := time.ParseDuration(after + "s")
				for _, gap := range s.gaps() {
					if gap <= asked || gap > most {
						t.Errorf("a gap of %v", gap)
					}
				}
			})
		})
	}
}

func TestAWaitSurvivesFailures(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				time.Sleep(30 * time.Second)
				return reply(200, queued("reports-1")), nil
			case 2:
				time.Sleep(20 * time.Second) // cut off while held back
				return nil, io.ErrUnexpectedEOF
			case 3:
				return refuse(503, api.CodeStore, "2"), nil
			}
			return reply(200, done("reports-1")), nil
		}}
		job, err := polling(over(t, s, Config{})).Wait(ctx, "reports-1")
		if err != nil || !job.Done || len(s.seen) != 4 {
			t.Errorf("%d requests: %v", len(s.seen), err)
		}
	})
}

// A Wait ends with its context, or earlier if the next request would be too late, and returns the
// job as last seen.
func TestAWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 40500*time.Millisecond)
		defer cancel()
		s := holding(100)
		began := time.Now()
		job, err := polling(over(t, s, Config{})).Wait(ctx, "reports-1")
		var e *Error
		if !errors.Is(err, ErrTooLate) || !errors.As(err, &e) || e.RetryAfter != 9*time.Second ||
			job.Status != api.Queued {
			t.Errorf("%+v, %v", job, err)
		}
		// 30 s and 10 s are held back. After one more request, half a second is less than the wait
		// that the answer asks for.
		if time.Since(began) != 40*time.Second || len(s.seen) != 3 ||
			s.seen[1].Header.Get("Prefer") != "wait=10" || s.seen[2].Header.Get("Prefer") != "" {
			t.Errorf("%d requests within %v", len(s.seen), time.Since(began))
		}
	})
}

func TestAWaitThatIsCanceledEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(3*time.Second, cancel)
		began := time.Now()
		s := one(200, queued("reports-1"), "Retry-After: 9")
		job, err := polling(over(t, s, Config{})).Wait(ctx, "reports-1")
		if !errors.Is(err, context.Canceled) || job == nil || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
	})
}

// A long poll is shorter than the HTTP client's own timeout.
func TestALongPollFitsTheHTTPClient(t *testing.T) {
	t.Parallel()
	s := one(200, done("reports-1"))
	http := &http.Client{Transport: s, Timeout: 10 * time.Second}
	c, err := New("http://forebay.test", Config{HTTPClient: http})
	if err != nil {
		t.Fatal(err)
	}
	_, err = polling(c).Wait(t.Context(), "reports-1")
	if err != nil || s.seen[0].Header.Get("Prefer") != "wait=5" {
		t.Errorf("Prefer %q, %v", s.seen[0].Header.Get("Prefer"), err)
	}
}
