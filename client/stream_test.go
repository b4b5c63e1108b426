package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
)

func TestAWaitFollowsAStream(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				io.WriteString(w, "retry: 3000\n\n"+event("status", 1, queued("reports-1")))
				for range 100 { // 25 minutes
					time.Sleep(15 * time.Second)
					io.WriteString(w, ": ping\n\n")
				}
				io.WriteString(w, event("status", 2, done("reports-1"))+event("done", 2, "{}"))
			}), nil
		}}
		c := over(t, s, Config{Timeout: time.Second, MaxElapsed: time.Second})
		c.http.Timeout = 2 * time.Second
		began := time.Now()
		job, err := c.Wait(ctx, "reports-1")
		if err != nil || job.Status != api.Succeeded || len(s.seen) != 1 ||
			time.Since(began) != 25*time.Minute {
			t.Errorf("%d requests within %v: %+v, %v", len(s.seen), time.Since(began), job, err)
		}
		h := s.seen[0].Header
		if h.Get("Accept") != "text/event-stream" || h.Get("Accept-Encoding") != "identity" ||
			h.Get("Prefer") != "" || h["Last-Event-Id"] != nil ||
			h.Get("Authorization") != "Bearer "+testKey {
			t.Errorf("%v", h)
		}
	})
}

// The HTTP client's own timeout bounds answers, but not streams.
func TestAStreamOutlivesTheHTTPClientsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				io.WriteString(w, event("status", 1, queued("reports-1")))
				for range 20 {
					io.WriteString(w, ": ping\n\n")
					time.Sleep(3 * time.Second)
				}
				io.WriteString(w, event("done", 2, done("reports-1")))
			}), nil
		}}
		http := &http.Client{Transport: s, Timeout: 10 * time.Second}
		c, err := New("http://forebay.test", Config{HTTPClient: http})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(ctx, "reports-1"); err != nil || len(s.seen) != 1 {
			t.Errorf("%d requests, %v", len(s.seen), err)
		}
	})
}

// A stream that ended before the job did is resumed, but not before the server's retry hint.
func TestABrokenStreamIsResumed(t *testing.T) {
	for name, end := range map[string]string{
		"by the server": "retry: 5000\n\n",
		"in an event":   "retry: 5000\n\nid: 9\nevent: status\ndata: {\"job_",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
					return live(r, func(w io.Writer) {
						if n == 1 {
							io.WriteString(w, event("status", 7, queued("reports-1")))
							time.Sleep(10 * time.Second)
							io.WriteString(w, end)
							return
						}
						io.WriteString(w, ": ok\n\n")
						time.Sleep(time.Second)
						job := done("reports-1")
						io.WriteString(w, event("status", 9, job)+event("done", 9, job))
					}), nil
				}}
				job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
				if err != nil || !job.Done || len(s.seen) != 2 ||
					s.seen[1].Header.Get("Last-Event-ID") != "7" ||
					!wantsStream(s.seen[1].Request) {
					t.Fatalf("%d requests: %+v, %v", len(s.seen), job, err)
				}
				if gap := s.gaps()[0]; gap < 15*time.Second || gap > 15*time.Second+DefaultBase {
					t.Errorf("the second stream came after %v", gap)
				}
			})
		})
	}
}

// Streams that last as long as a long poll are used again, however they end.
func TestStreamsThatLastAWhileAreUsedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				if n == 1 {
					io.WriteString(w, event("status", 1, queued("reports-1")))
				}
				io.WriteString(w, ": ok\n\n") // later streams send nothing more
				time.Sleep(35 * time.Second)
				if n == 20 {
					io.WriteString(w, event("done", 2, done("reports-1")))
				}
			}), nil
		}}
		if _, err := over(t, s, Config{}).Wait(ctx, "reports-1"); err != nil {
			t.Fatal(err)
		}
		for _, r := range s.seen {
			if !wantsStream(r.Request) {
				t.Error("a poll")
			}
		}
		for _, gap := range s.gaps() {
			if gap <= 35*time.Second || gap > 35*time.Second+DefaultBase {
				t.Errorf("a gap of %v", gap)
			}
		}
	})
}

func TestAStreamedWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		within, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		freed := make(chan struct{})
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				defer close(freed)
				for {
					if _, err := io.WriteString(w,
						event("status", 1, queued("reports-1"))); err != nil {
						return // the client has left
					}
					time.Sleep(10 * time.Second)
				}
			}), nil
		}}
		began := time.Now()
		job, err := over(t, s, Config{}).Wait(within, "reports-1")
		var e *Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || job == nil ||
			job.Status != api.Queued || time.Since(began) != time.Minute {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
		<-freed
	})
}

// A retry hint longer than the remaining time ends the Wait.
func TestARetryHintPastTheDeadlineEndsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				io.WriteString(w, event("status", 1, queued("reports-1"))+"retry: 3600000\n\n")
			}), nil
		}}
		began := time.Now()
		job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
		var e *Error
		if !errors.Is(err, ErrTooLate) || !errors.As(err, &e) || e.RetryAfter != time.Hour ||
			job == nil || time.Since(began) != 0 {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
	})
}

// C62 and C63 for streams: a server that stops ends all of them together. They come back spread,
// and none before the server's hint.
func TestWaitsOfAServerThatStopsComeBackApart(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		const clients = 1000
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				if n <= clients {
					io.WriteString(w, event("status", 1, queued("reports-1"))+"retry: 3000\n\n")
					return
				}
				io.WriteString(w, event("done", 2, done("reports-1")))
			}), nil
		}}
		began := time.Now()
		var wg sync.WaitGroup
		for range clients {
			c := over(t, s, Config{})
			wg.Go(func() {
				if _, err := c.Wait(ctx, "reports-1"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		within := map[time.Duration]int{}
		for _, r := range s.seen[clients:] {
			at := r.at.Sub(began)
			if at < 3*time.Second {
				t.Errorf("a stream after %v, earlier than allowed", at)
			}
			within[at.Truncate(20*time.Millisecond)]++
		}
		if len(s.seen) != 2*clients || len(within) < 20 {
			t.Errorf("%d requests, the second ones within %d parts of 20ms",
				len(s.seen), len(within))
		}
		for at, n := range within {
			if n > clients/8 {
				t.Errorf("%d within 20ms at %v", n, at)
			}
		}
	})
}

func TestAStreamsEventsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		for _, flood := range []string{"data: ", "data: x\n", "id: ", "\n", "retry: 1\n"} {
			s := held(time.Second, func(r *http.Request) (*http.Response, error) {
				return live(r, func(w io.Writer) {
					text := flood
					if !strings.HasSuffix(flood, "\n") {
						text += strings.Repeat("x", 1<<17)
					}
					for range 1 << 12 {
						if _, err := io.WriteString(w, text); err != nil {
							return
						}
					}
				}), nil
			})
			job, err := over(t, s, Config{MaxBody: 1 << 12}).Wait(ctx, "reports-1")
			if err != nil || !job.Done {
				t.Errorf("%q: %v", flood, err)
			}
		}
	})
}

// A job's end ends its Wait, whatever the stream sends after it.
func TestAStreamThatGoesOnDelaysNoCaller(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				for {
					if _, err := io.WriteString(w,
						event("done", 2, done("reports-1"))); err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}), nil
		}}
		began := time.Now()
		job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
		if err != nil || !job.Done || time.Since(began) > lastWords {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
	})
}

// An event that isn't about the job changes nothing.
func TestAForeignEventIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				for i, data := range []string{
					"", "7", "not json", `{"job_id":7}`, `{"done":true}`, done("reports-2"),
					queued("reports-1"), done("reports-1"),
				} {
					fmt.Fprint(w, event("status", i, data))
					time.Sleep(time.Second)
				}
			}), nil
		}}
		began := time.Now()
		job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
		if err != nil || job.ID != "reports-1" || len(s.seen) != 1 ||
			time.Since(began) < 7*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
	})
}

// Over a real connection: the server notices a client that leaves. A client that waited to the end
// reuses its connection.
func TestAStreamsConnectionIsFreed(t *testing.T) {
	t.Parallel()
	begun, left := make(chan struct{}), make(chan struct{})
	var from []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs/reports-1", func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.RemoteAddr)
		if !wantsStream(r) {
			io.WriteString(w, done("reports-1"))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		io.WriteString(w, event("done", 2, done("reports-1")))
	})
	mux.HandleFunc("GET /v1/jobs/reports-2", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, event("status", 1, queued("reports-2")))
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
		close(left)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c, err := New(server.URL, Config{HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		second(c.Wait(t.Context(), "reports-1")), second(c.Status(t.Context(), "reports-1")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(from) != 2 || from[0] != from[1] {
		t.Errorf("requests from %v, want one connection", from)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := c.Wait(ctx, "reports-2"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-left
}
