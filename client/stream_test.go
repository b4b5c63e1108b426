package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/api"
)

func TestAWaitIsToldByAStream(t *testing.T) {
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
		if err != nil || job.Status != api.Succeeded || len(s.seen) != 1 || time.Since(began) != 25*time.Minute {
			t.Errorf("%d requests within %v: %+v, %v", len(s.seen), time.Since(began), job, err)
		}
		h := s.seen[0].Header
		if h.Get("Accept") != "text/event-stream" || h.Get("Accept-Encoding") != "identity" || h.Get("Prefer") != "" || h["Last-Event-Id"] != nil || h.Get("Authorization") != "Bearer "+testKey {
			t.Errorf("%v", h)
		}
	})
}

// The HTTP client's own timeout is for answers, and a stream isn't one that ends.
func TestAStreamOutlivesTheHTTPClientsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				for range 20 {
					io.WriteString(w, ": ping\n\n")
					time.Sleep(3 * time.Second)
				}
				io.WriteString(w, event("done", 2, done("reports-1")))
			}), nil
		}}
		c, err := New("http://forebay.test", Config{HTTPClient: &http.Client{Transport: s, Timeout: 10 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(ctx, "reports-1"); err != nil || len(s.seen) != 1 {
			t.Errorf("%d requests, %v", len(s.seen), err)
		}
	})
}

// A stream that ended before the job did is taken up where it broke off, not before the server's retry hint.
func TestAStreamIsTakenUpWhereItBrokeOff(t *testing.T) {
	for name, end := range map[string]string{"by the server": "retry: 5000\n\n", "in an event": "retry: 5000\n\nid: 9\nevent: status\ndata: {\"job_"} {
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
						io.WriteString(w, event("status", 9, done("reports-1"))+event("done", 9, done("reports-1")))
					}), nil
				}}
				job, err := over(t, s, Config{}).Wait(ctx, "reports-1")
				if err != nil || !job.Done || len(s.seen) != 2 || s.seen[1].Header.Get("Last-Event-ID") != "7" || !wantsStream(s.seen[1].Request) {
					t.Fatalf("%d requests: %+v, %v", len(s.seen), job, err)
				}
				if gap := s.gaps()[0]; gap < 15*time.Second || gap > 15*time.Second+DefaultBase {
					t.Errorf("the second stream came after %v", gap)
				}
			})
		})
	}
}

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

// Streams that live as long as a long poll would are kept up, whoever ends them.
func TestStreamsThatLastAWhileAreKeptUp(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				io.WriteString(w, ": ok\n\n")
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
					if _, err := io.WriteString(w, event("status", 1, queued("reports-1"))); err != nil {
						return // the client has gone
					}
					time.Sleep(10 * time.Second)
				}
			}), nil
		}}
		began := time.Now()
		job, err := over(t, s, Config{}).Wait(within, "reports-1")
		var e *Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || job == nil || job.Status != api.Queued || time.Since(began) != time.Minute {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
		<-freed
	})
}

// A server that asks to stay away for longer than there is time is taken at its word.
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
		if !errors.Is(err, ErrTooLate) || !errors.As(err, &e) || e.RetryAfter != time.Hour || job == nil || time.Since(began) != 0 {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
	})
}

// C62, C63, for streams: a server that stops ends all of them together, and they come back apart, none before its hint.
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
				t.Errorf("a stream after %v, before it may", at)
			}
			within[at.Truncate(20*time.Millisecond)]++
		}
		if len(s.seen) != 2*clients || len(within) < 20 {
			t.Errorf("%d requests, the second ones within %d parts of 20ms", len(s.seen), len(within))
		}
		for at, n := range within {
			if n > clients/8 {
				t.Errorf("%d within 20ms at %v", n, at)
			}
		}
	})
}

// The events of the specification, with whatever line ends, in whatever pieces they come.
func TestEventsAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	text := ":a comment\n\nretry: 1500\nretry: soon\nid: 1\nevent: status\ndata: one\n\n" + // an event
		"id: 2\n\n" + // none, but from here on it goes on after 2
		"data:two\nid\ndata\ndata:  three\nunknown: x\n\n" + // without an id, as a field without a value
		"id: 5 6\ndata: four\nid:7\n\n" +
		"id: 8\ndata: cut off\n"
	type read struct {
		data, id string
		retry    time.Duration
	}
	want := []read{{"one", "1", 1500 * time.Millisecond}, {"two\n\n three", "", 1500 * time.Millisecond}, {"four", "7", 1500 * time.Millisecond}}
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for _, size := range []int{1, 2, 7, 1000} {
			var got []read
			e := newEvents(pieces{strings.NewReader(strings.ReplaceAll(text, "\n", end)), size}, 1<<10)
			for data, more := e.next(); more; data, more = e.next() {
				got = append(got, read{string(data), e.id, e.retry})
			}
			if !slices.Equal(got, want) || e.id != "7" {
				t.Errorf("%q in pieces of %d: %v, then %s", end, size, got, e.id)
			}
		}
	}
}

// pieces reads at most size bytes at once.
type pieces struct {
	io.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

// An event is there when its last line is, also where lines end by \r.
func TestAnEventIsToldWithoutWaitingForMore(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"data: x\r\r", "data: x\n\n", "data: x\r\n\r\n"} {
		r, w := io.Pipe()
		go io.WriteString(w, text)
		if data, more := newEvents(r, 1<<10).next(); !more || string(data) != "x" {
			t.Errorf("%q: %q", text, data)
		}
		r.Close()
	}
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
			if job, err := over(t, s, Config{MaxBody: 1 << 12}).Wait(ctx, "reports-1"); err != nil || !job.Done {
				t.Errorf("%q: %v", flood, err)
			}
		}
	})
}

// What isn't about the job changes nothing.
func TestAStrangeEventIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return live(r, func(w io.Writer) {
				for i, data := range []string{"", "7", "not json", `{"job_id":7}`, `{"done":true}`, done("reports-2"), queued("reports-1"), done("reports-1")} {
					fmt.Fprint(w, event("status", i, data))
					time.Sleep(time.Second)
				}
			}), nil
		}}
		began := time.Now()
		if job, err := over(t, s, Config{}).Wait(ctx, "reports-1"); err != nil || job.ID != "reports-1" || len(s.seen) != 1 || time.Since(began) < 7*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), job, err)
		}
	})
}

// Whatever comes, it is read in the same way in pieces as whole, and within its bound.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{"data: x\n\n", "id: 1\rdata: x\r\n\r\n:\n", "retry: 99999999999999999999\n\n", "data\n\ndata:\n\n", "\xef\xbb\xbfdata: x\n\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const most = 1 << 12
		read := func(r io.Reader) (all []string) {
			e := newEvents(r, most)
			for data, more := e.next(); more; data, more = e.next() {
				if len(data) == 0 || len(data) > most || len(e.id) > maxEventID || e.retry < 0 {
					t.Fatalf("%d bytes of data, id %q, retry %v", len(data), e.id, e.retry)
				}
				all = append(all, e.id+"\n"+string(data))
			}
			return all
		}
		if whole, parts := read(strings.NewReader(text)), read(pieces{strings.NewReader(text), 1}); !slices.Equal(whole, parts) {
			t.Errorf("%q whole, %q in pieces", whole, parts)
		}
	})
}
