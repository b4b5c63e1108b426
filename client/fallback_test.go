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

// held are the long polls of a job that ends at a time after the start; streams are answered by stream.
func held(ends time.Duration, stream func(r *http.Request) (*http.Response, error)) *stub {
	began := time.Now()
	return &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if wantsStream(r) {
			return stream(r)
		}
		left := ends - time.Since(began)
		if wait, err := time.ParseDuration(strings.TrimPrefix(r.Header.Get("Prefer"), "wait=") + "s"); err == nil {
			time.Sleep(min(wait, left))
		}
		if time.Since(began) < ends {
			return reply(200, queued("reports-1"), "Retry-After: 9"), nil
		}
		return reply(200, done("reports-1")), nil
	}}
}

// A proxy that holds answers back until they are whole costs a few seconds at the first wait, and none at the next ones.
func TestAStreamThatIsHeldUpIsGivenUp(t *testing.T) {
	for name, stream := range map[string]func(r *http.Request) (*http.Response, error){
		"whole": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"but for the head": func(r *http.Request) (*http.Response, error) {
			return live(r, func(io.Writer) { <-r.Context().Done() }), nil
		},
		"but for comments, or compressed": func(r *http.Request) (*http.Response, error) {
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
				if job, err := c.Wait(ctx, "reports-1"); err != nil || !job.Done || time.Since(began) != 40*time.Second {
					t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
				}
				if gaps := s.gaps(); !slices.Equal(gaps, []time.Duration{5 * time.Second, 30 * time.Second}) || s.seen[1].Header.Get("Prefer") != "wait=30" {
					t.Errorf("gaps %v, then Prefer: %s", gaps, s.seen[1].Header.Get("Prefer"))
				}
				c.Wait(ctx, "reports-1")
				if len(s.seen) != 4 || wantsStream(s.seen[3].Request) {
					t.Errorf("the next wait took %d requests, and tried a stream: %t", len(s.seen)-3, wantsStream(s.seen[3].Request))
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

// A wait that goes on for long comes back to streams.
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
		if _, err := over(t, s, Config{}).Wait(ctx, "reports-1"); err != nil || streams != 2 || time.Since(began) < pollsFor || time.Since(began) > pollsFor+time.Minute {
			t.Errorf("%d streams, %v, %v", streams, time.Since(began), err)
		}
	})
}

// What was held up and let go as the job ended is as good as a stream.
func TestAStreamThatComesWholeIsRead(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return reply(200, event("status", 1, queued("reports-1"))+event("done", 2, done("reports-1")), "Content-Type: text/event-stream; charset=utf-8"), nil
		}}
		if job, err := over(t, s, Config{}).Wait(ctx, "reports-1"); err != nil || !job.Done || len(s.seen) != 1 {
			t.Errorf("%d requests: %+v, %v", len(s.seen), job, err)
		}
	})
}

// A connection that died without a word, as behind a gateway that forgot it, is noticed by its silence.
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
		if _, err := c.Wait(ctx, "reports-1"); err != nil || !slices.Equal(s.gaps(), []time.Duration{15*time.Second + longestSilence}) {
			t.Errorf("gaps %v, %v", s.gaps(), err)
		}
		c.Wait(ctx, "reports-1")
		if !wantsStream(s.seen[2].Request) {
			t.Error("the next wait, of another connection, did without a stream")
		}
	})
}

// Whatever there is instead of a stream, the job's end is found; at once where that is no trouble, and else not before the time.
func TestAnythingButAStreamIsFollowedByAPoll(t *testing.T) {
	t.Parallel()
	html := func(status int) *http.Response { return reply(status, "<html>", "Content-Type: text/html") }
	for name, c := range map[string]struct {
		stream      func() (*http.Response, error)
		least, most time.Duration
		all         bool // the next wait polls at once
	}{
		"406":                  {stream: func() (*http.Response, error) { return refuse(406, "x", ""), nil }, all: true},
		"404 of a proxy":       {stream: func() (*http.Response, error) { return html(404), nil }},
		"a page":               {stream: func() (*http.Response, error) { return html(200), nil }, all: true},
		"the status":           {stream: func() (*http.Response, error) { return reply(200, queued("reports-1"), "Retry-After: 9"), nil }, all: true},
		"nothing more to tell": {stream: func() (*http.Response, error) { return reply(204, ""), nil }},
		"too many streams":     {stream: func() (*http.Response, error) { return refuse(429, api.CodeTooManyStreams, "60"), nil }},
		"a limit":              {stream: func() (*http.Response, error) { return refuse(429, api.CodeRateLimit, "7"), nil }, least: 7 * time.Second, most: 8 * time.Second},
		"a store that is lost": {stream: func() (*http.Response, error) { return refuse(503, api.CodeStore, "2"), nil }, least: 2 * time.Second, most: 3 * time.Second},
		"502":                  {stream: func() (*http.Response, error) { return html(502), nil }, least: 1, most: DefaultBase},
		"refused":              {stream: func() (*http.Response, error) { return nil, errors.New("connection refused") }, least: 1, most: DefaultBase},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := held(20*time.Second, func(*http.Request) (*http.Response, error) { return c.stream() })
				began, client := time.Now(), over(t, s, Config{})
				if job, err := client.Wait(ctx, "reports-1"); err != nil || !job.Done || time.Since(began) != 20*time.Second || len(s.seen) != 2 {
					t.Errorf("%d requests within %v: %+v, %v", len(s.seen), time.Since(began), job, err)
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

// What no poll can mend is an error, and the same as without streams.
func TestAWaitThatCantComeToAnythingSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		for code, status := range map[string]int{api.CodeUnknownJob: 404, api.CodeJobGone: 410, api.CodeInvalidCredentials: 401} {
			s := &stub{answer: func(int, *http.Request) (*http.Response, error) { return refuse(status, code, ""), nil }}
			var e *Error
			if _, err := over(t, s, Config{}).Wait(ctx, "reports-1"); !errors.As(err, &e) || e.Code != code || len(s.seen) != 2 {
				t.Errorf("%d requests: %v", len(s.seen), err)
			}
		}
		// C56.
		began := time.Now()
		s := &stub{answer: func(int, *http.Request) (*http.Response, error) { return refuse(503, api.CodeStore, "3600"), nil }}
		var e *Error
		if _, err := over(t, s, Config{}).Wait(ctx, "reports-1"); !errors.As(err, &e) || e.RetryAfter != time.Hour || !errors.Is(err, ErrTooLate) || len(s.seen) != 1 || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A server, or something on the way, that ends each stream at once isn't asked for ever, nor often.
func TestStreamsThatDontLastAreGivenUp(t *testing.T) {
	for name, after := range map[string]time.Duration{"ended at once": 0, "ended soon": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				id := 0
				s := held(9*time.Minute, func(r *http.Request) (*http.Response, error) {
					return live(r, func(w io.Writer) {
						id++ // each with news
						io.WriteString(w, event("status", id, queued("reports-1")))
						time.Sleep(after)
					}), nil
				})
				c := over(t, s, Config{Rand: func() float64 { return 0 }})
				if job, err := c.Wait(ctx, "reports-1"); err != nil || !job.Done {
					t.Fatalf("%+v, %v", job, err)
				}
				want := []time.Duration{after + DefaultBase, after + 2*DefaultBase, after + 4*DefaultBase}
				if gaps := s.gaps(); !slices.Equal(gaps[:3], want) || len(gaps) > 3+9*2 || wantsStream(s.seen[3].Request) {
					t.Errorf("gaps %v", gaps)
				}
			})
		})
	}
}
