package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
)

// held returns a stub for a job that ends after the given time. It holds long polls back, and
// answers streams by stream.
func held(ends time.Duration, stream func(r *http.Request) (*http.Response, error)) *stub {
	began := time.Now()
	return &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if wantsStream(r) {
			return stream(r)
		}
		left := ends - time.Since(began)
		prefer := strings.TrimPrefix(r.Header.Get("Prefer"), "wait=")
		if wait, err := time.ParseDuration(prefer + "s"); err == nil {
			time.Sleep(min(wait, left))
		}
		if time.Since(began) < ends {
			return reply(200, queued("reports-1"), "Retry-After: 9"), nil
		}
		return reply(200, done("reports-1")), nil
	}}
}

// A buffering proxy costs a few seconds of the first Wait, and nothing of later ones.
func TestABufferedStreamIsGivenUp(t *testing.T) {
	for name, stream := range map[string]func(r *http.Request) (*http.Response, error){
		"everything": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"all but the head": func(r *http.Request) (*http.Response, error) {
			return live(r, func(io.Writer) { <-r.Context().Done() }), nil
		},
		"all but comments, or compressed": func(r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				for {
					if _, err := io.WriteString(w, "\x1f\x8b\b\n: ping\n\n"); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := held(40*time.Second, stream)
				c := over(t, s, Config{})
				began := time.Now()
				job, err := c.Wait(ctx, "reports-1")
				if err != nil || !job.Done || time.Since(began) != 40*time.Second {
					t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
				}
				want := []time.Duration{5 * time.Second, 30 * time.Second}
				if gaps := s.gaps(); !slices.Equal(gaps, want) ||
					s.seen[1].Header.Get("Prefer") != "wait=30" {
					t.Errorf("gaps %v, then Prefer: %s", gaps, s.seen[1].Header.Get("Prefer"))
				}
				c.Wait(ctx, "reports-1")
				if len(s.seen) != 4 || wantsStream(s.seen[3].Request) {
					t.Errorf("the next wait took %d requests, and tried a stream: %t",
						len(s.seen)-3, wantsStream(s.seen[3].Request))
				}
				time.Sleep(pollsFor)
				c.Wait(ctx, "reports-1")
				if !wantsStream(s.seen[4].Request) {
					t.Error("streams weren't tried again")
				}
			})
		})
	}
}

// A long Wait tries streams again.
func TestALongWaitTriesStreamsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		var streams int
		s := held(time.Hour, func(r *http.Request) (*http.Response, error) {
			if streams++; streams == 1 {
				return reply(502, ""), nil
			}
			return live(r, func(w io.Writer) {
				io.WriteString(w, event("status", 1, queued("reports-1")))
				time.Sleep(10 * time.Second)
				io.WriteString(w, event("done", 2, done("reports-1")))
			}), nil
		})
		began := time.Now()
		_, err := over(t, s, Config{}).Wait(ctx, "reports-1")
		if took := time.Since(began); err != nil || streams != 2 || took < pollsFor ||
			took > pollsFor+time.Minute {
			t.Errorf("%d streams, %v, %v", streams, took, err)
		}
	})
}

// A stream that was buffered, and released when the job ended, is read like any other.
func TestAStreamThatComesAtOnceIsRead(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			events := event("status", 1, queued("reports-1")) + event("done", 2, done("reports-1"))
			return reply(200, events, "Content-Type: text/event-stream; charset=utf-8"), nil
		}}
		job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
		if err != nil || !job.Done || len(s.seen) != 1 {
			t.Errorf("%d requests: %+v, %v", len(s.seen), job, err)
		}
	})
}

// A connection that died unnoticed, as behind a gateway that dropped it, is detected by its
// silence.
func TestAStreamThatFallsSilentIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := held(20*time.Second, func(r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				io.WriteString(w, event("status", 1, queued("reports-1")))
				time.Sleep(15 * time.Second)
				io.WriteString(w, ": ping\n\n")
				<-r.Context().Done()
			}), nil
		})
		c := over(t, s, Config{})
		_, err := c.Wait(ctx, "reports-1")
		want := []time.Duration{15*time.Second + longestSilence}
		if err != nil || !slices.Equal(s.gaps(), want) {
			t.Errorf("gaps %v, %v", s.gaps(), err)
		}
		c.Wait(ctx, "reports-1")
		if !wantsStream(s.seen[2].Request) {
			t.Error("the next wait, of another connection, tried no stream")
		}
	})
}

// Whatever comes instead of a stream, the job's end is found: at once after an answer without
// fault, and otherwise after the wait that it asks for.
func TestAnAnswerInsteadOfAStreamIsFollowedByAPoll(t *testing.T) {
	t.Parallel()
	type answers = func() (*http.Response, error)
	refused := func(status int, code, after string) answers {
		return func() (*http.Response, error) { return refuse(status, code, after), nil }
	}
	html := func(status int) answers {
		return func() (*http.Response, error) {
			return reply(status, "<html>", "Content-Type: text/html"), nil
		}
	}
	for name, c := range map[string]struct {
		stream      answers
		least, most time.Duration
		all         bool // the next wait polls at once
	}{
		"406":            {stream: refused(406, "x", ""), all: true},
		"404 of a proxy": {stream: html(404)},
		"a page":         {stream: html(200), all: true},
		"the status": {stream: func() (*http.Response, error) {
			return reply(200, queued("reports-1"), "Retry-After: 9"), nil
		}, all: true},
		"no more events":   {stream: func() (*http.Response, error) { return reply(204, ""), nil }},
		"too many streams": {stream: refused(429, api.CodeTooManyStreams, "60")},
		"a limit": {stream: refused(429, api.CodeRateLimit, "7"),
			least: 7 * time.Second, most: 8 * time.Second},
		"an unavailable store": {stream: refused(503, api.CodeStore, "2"),
			least: 2 * time.Second, most: 3 * time.Second},
		"502": {stream: html(502), least: 1, most: DefaultBase},
		"refused": {stream: func() (*http.Response, error) {
			return nil, errors.New("connection refused")
		}, least: 1, most: DefaultBase},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := held(20*time.Second, func(*http.Request) (*http.Response, error) {
					return c.stream()
				})
				began, client := time.Now(), over(t, s, Config{})
				job, err := client.Wait(ctx, "reports-1")
				if err != nil || !job.Done || time.Since(began) != 20*time.Second ||
					len(s.seen) != 2 {
					t.Errorf("%d requests within %v: %+v, %v",
						len(s.seen), time.Since(began), job, err)
				}
				if gap := s.gaps()[0]; gap < c.least || gap > c.most {
					t.Errorf("the poll came after %v", gap)
				}
				client.Wait(ctx, "reports-1")
				if got := !wantsStream(s.seen[2].Request); got != c.all {
					t.Errorf("the next wait polls at once: %t", got)
				}
			})
		})
	}
}

// A failure that no poll can help is an error, the same as without streams.
func TestAHopelessWaitReturnsTheReason(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		for code, status := range map[string]int{
			api.CodeUnknownJob: 404, api.CodeJobGone: 410, api.CodeInvalidCredentials: 401,
		} {
			s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
				return refuse(status, code, ""), nil
			}}
			var e *Error
			_, err := over(t, s, Config{}).Wait(ctx, "reports-1")
			if !errors.As(err, &e) || e.Code != code || len(s.seen) != 2 {
				t.Errorf("%d requests: %v", len(s.seen), err)
			}
		}
		// C56.
		began := time.Now()
		s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
			return refuse(503, api.CodeStore, "3600"), nil
		}}
		var e *Error
		_, err := over(t, s, Config{}).Wait(ctx, "reports-1")
		if !errors.As(err, &e) || e.RetryAfter != time.Hour || !errors.Is(err, ErrTooLate) ||
			len(s.seen) != 1 || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A server or a proxy that ends each stream at once is asked neither for ever nor often.
func TestStreamsThatDontLastAreGivenUp(t *testing.T) {
	for name, after := range map[string]time.Duration{"ended at once": 0,
		"ended soon": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				id := 0
				s := held(9*time.Minute, func(r *http.Request) (*http.Response, error) {
					return live(r, func(w io.Writer) {
						id++ // each with a new event
						io.WriteString(w, event("status", id, queued("reports-1")))
						time.Sleep(after)
					}), nil
				})
				c := over(t, s, Config{Rand: func() float64 { return 0 }})
				if job, err := c.Wait(ctx, "reports-1"); err != nil || !job.Done {
					t.Fatalf("%+v, %v", job, err)
				}
				want := []time.Duration{after + DefaultBase, after + 2*DefaultBase,
					after + 4*DefaultBase}
				if gaps := s.gaps(); !slices.Equal(gaps[:3], want) || len(gaps) > 3+9*2 ||
					wantsStream(s.seen[3].Request) {
					t.Errorf("gaps %v", gaps)
				}
			})
		})
	}
}
