package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
)

var anyJob = Request{
	Operation: "report",
	Payload:   []byte(`{"month": "2026-11", "big": 12345678901234567890, "text": "<&>"}`),
}

// C59: a call that can't succeed is tried once, and one that may is tried again.
func TestOnlyCallsThatMaySucceedAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 424, 304,
		501, 505} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := script(status)
				_, err := over(t, s, Config{}).Submit(ctx, anyJob)
				var e *Error
				if !errors.As(err, &e) || e.Status != status || e.Attempts != 1 ||
					e.GaveUp != nil ||
					len(s.seen) != 1 {
					t.Errorf("%d tries, %#v", len(s.seen), err)
				}
			})
		})
	}
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504, 520, 529, 599} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := script(status, status, 202)
				sub, err := over(t, s, Config{}).Submit(ctx, anyJob)
				if err != nil || sub.JobID != "reports-1" || len(s.seen) != 3 {
					t.Errorf("%d tries, %v", len(s.seen), err)
				}
			})
		})
	}
}

func TestABrokenConnectionIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return nil, errors.New("connection refused")
			case 2: // breaks in the middle of the answer
				r := reply(200, "")
				r.Body = io.NopCloser(io.MultiReader(strings.NewReader("half an ans"), broken{}))
				return r, nil
			}
			return reply(200, "whole"), nil
		}}
		result, err := over(t, s, Config{}).Result(ctx, "reports-1")
		if err != nil || string(result.Body) != "whole" || len(s.seen) != 3 {
			t.Errorf("%d tries, %v", len(s.seen), err)
		}
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A server that accepts a request and never answers fails one try, not the call.
func TestATryThatHangsIsCutOffAndRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			if n == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return reply(200, queued("reports-1")), nil
		}}
		c := over(t, s, Config{Timeout: 3 * time.Second})
		if _, err := c.Status(ctx, "reports-1"); err != nil {
			t.Fatal(err)
		}
		if gap := s.gaps()[0]; gap < 3*time.Second || gap > 3*time.Second+DefaultBase {
			t.Errorf("the second try came after %v", gap)
		}
	})
}

// C58: each try has the same bytes, length, content type and key.
func TestEachTryIsTheSameRequest(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		s := script(503, 429, 202)
		if _, err := over(t, s, Config{}).Submit(ctx, anyJob); err != nil {
			t.Fatal(err)
		}
		want := `{"operation":"report","payload":` + string(anyJob.Payload) + `}`
		for i, r := range s.seen {
			if r.body != want || r.ContentLength != int64(len(want)) ||
				r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("try %d: %d bytes %s", i+1, r.ContentLength, r.body)
			}
			key := r.Header.Get("Idempotency-Key")
			if len(key) < 20 || key != s.seen[0].Header.Get("Idempotency-Key") {
				t.Errorf("try %d: key %s", i+1, key)
			}
		}
		if len(s.seen) != 3 {
			t.Errorf("%d tries", len(s.seen))
		}
	})
}

// C60: at any number of tries, the wait is in the range of its jitter.
func TestAHundredTriesKeepTheirDistance(t *testing.T) {
	for name, floor := range map[string]time.Duration{
		"full": 0, "equal": 2500 * time.Microsecond, "none": 5 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			jitter := map[string]Jitter{"full": Full, "equal": Equal, "none": None}[name]
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := script(503)
				c := over(t, s, Config{MaxAttempts: 100, Backoff: Backoff{
					Base: time.Millisecond, Cap: 5 * time.Millisecond, Jitter: jitter,
				}})
				_, err := c.Submit(ctx, anyJob)
				var e *Error
				if !errors.Is(err, ErrTooOften) || !errors.As(err, &e) || e.Attempts != 100 ||
					len(s.seen) != 100 {
					t.Fatalf("%d tries, %v", len(s.seen), err)
				}
				for i, gap := range s.gaps() {
					if gap <= 0 || gap > 5*time.Millisecond || i >= 9 && gap < floor {
						t.Errorf("gap %d is %v", i+1, gap)
					}
				}
				late := s.gaps()[9:]
				if jitter != None && slices.Max(late)-slices.Min(late) < time.Millisecond {
					t.Errorf("the waits aren't spread: %v to %v",
						slices.Min(late), slices.Max(late))
				}
			})
		})
	}
}

// C53: dates work like seconds. None is read as "at once", and a past one is no wait.
func TestRetryAfterDatesAreKept(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]string{
		"seconds": "", "imf": http.TimeFormat, "rfc 850": "Monday, 02-Jan-06 15:04:05 GMT",
		"asctime": time.ANSIC,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := &stub{answer: func(n int, _ *http.Request) (*http.Response, error) {
					after := "3"
					if format != "" {
						after = time.Now().UTC().Add(3 * time.Second).Format(format)
					}
					if n == 1 {
						return refuse(429, "rate_limit_exceeded", after), nil
					}
					return reply(202, queued("reports-1")), nil
				}}
				if _, err := over(t, s, Config{}).Submit(ctx, anyJob); err != nil {
					t.Fatal(err)
				}
				if gap := s.gaps()[0]; gap < 3*time.Second || gap > 3*time.Second+DefaultBase {
					t.Errorf("the second try came after %v", gap)
				}
			})
		})
	}
}

func TestAnUnusableRetryAfterLeavesTheBackoff(t *testing.T) {
	t.Parallel()
	past := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC).Format(http.TimeFormat)
	for _, after := range []string{past, "0", "-5", "1.5", "NaN", "soon", " "} {
		t.Run(after, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
					return refuse(503, "x", after), nil
				}}
				c := over(t, s, Config{MaxAttempts: 4, Rand: func() float64 { return 0 }})
				c.Status(ctx, "reports-1")
				want := []time.Duration{DefaultBase, 2 * DefaultBase, 4 * DefaultBase}
				if !slices.Equal(s.gaps(), want) {
					t.Errorf("gaps %v, want %v", s.gaps(), want)
				}
			})
		})
	}
}

// The date is by the server's clock: a client whose own clock is an hour ahead still waits.
func TestAServersDateIsComparedWithTheServersClock(t *testing.T) {
	t.Parallel()
	there := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	h := http.Header{"Date": {there.Format(http.TimeFormat)},
		"Retry-After": {there.Add(7 * time.Second).Format(http.TimeFormat)}}
	if got := retryAfter(h, there.Add(time.Hour)); got != 7*time.Second {
		t.Errorf("%v, want 7s", got)
	}
}

// C56: a wait that is too long isn't begun, and the error has its length.
func TestAWaitThatIsTooLongIsGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  Config
		context time.Duration
		after   string
		asked   time.Duration
	}{
		"max elapsed": {Config{MaxElapsed: 5 * time.Second}, 30 * time.Second, "3600",
			time.Hour},
		"deadline":       {Config{MaxElapsed: -1}, 30 * time.Second, "3600", time.Hour},
		"default":        {Config{}, 24 * time.Hour, "3600", time.Hour},
		"more than that": {Config{}, 24 * time.Hour, strings.Repeat("9", 400), 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, c.context)
				defer cancel()
				began := time.Now()
				s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
					return refuse(429, api.CodeRateLimit, c.after), nil
				}}
				_, err := over(t, s, c.config).Submit(ctx, anyJob)
				var e *Error
				if !errors.As(err, &e) || !errors.Is(err, ErrTooLate) || e.RetryAfter != c.asked ||
					e.Code != api.CodeRateLimit || e.Reason != "per-minute" ||
					e.Problem.Detail != "D." {
					t.Fatalf("%#v", err)
				}
				if time.Since(began) != 0 || len(s.seen) != 1 {
					t.Errorf("%d tries within %v", len(s.seen), time.Since(began))
				}
				if !strings.Contains(err.Error(), "it asked for a wait of "+c.asked.String()) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestAContextThatEndsEndsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		why := errors.New("the user has left")
		time.AfterFunc(time.Second, func() { cancel(why) })
		began := time.Now()
		s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
			return refuse(429, "x", "60"), nil
		}}
		_, err := over(t, s, Config{}).Submit(ctx, anyJob)
		var e *Error
		if !errors.Is(err, why) || !errors.As(err, &e) || e.Status != 429 ||
			time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestAContextThatEndsEndsTheTry(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s := &stub{answer: func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		_, err := over(t, s, Config{}).Status(ctx, "reports-1")
		if !errors.Is(err, context.DeadlineExceeded) || len(s.seen) != 1 {
			t.Errorf("%d tries, %v", len(s.seen), err)
		}
	})
}

// C62, C63: clients that were refused together come back spread, and none of them early.
func TestClientsRefusedTogetherComeBackSpread(t *testing.T) {
	t.Parallel()
	for name, jitter := range map[string]Jitter{"full": Full, "equal": Equal} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				const clients = 50
				s := &stub{answer: func(n int, _ *http.Request) (*http.Response, error) {
					if n <= clients {
						return refuse(429, "x", "2"), nil
					}
					return reply(202, queued("reports-1")), nil
				}}
				began := time.Now()
				var wg sync.WaitGroup
				for range clients {
					c := over(t, s, Config{Backoff: Backoff{Jitter: jitter}})
					wg.Go(func() {
						if _, err := c.Submit(ctx, anyJob); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				second := make(map[time.Duration]int)
				times := []time.Duration{}
				for _, r := range s.seen[clients:] {
					at := r.at.Sub(began)
					if at < 2*time.Second {
						t.Errorf("a try after %v, earlier than allowed", at)
					}
					times = append(times, at)
					second[at.Truncate(20*time.Millisecond)]++
				}
				if len(times) != clients ||
					slices.Max(times)-slices.Min(times) < 200*time.Millisecond {
					t.Errorf("%d second tries, within %v",
						len(times), slices.Max(times)-slices.Min(times))
				}
				for at, n := range second {
					if n > clients/4 {
						t.Errorf("%d tries within 20ms at %v", n, at)
					}
				}
			})
		})
	}
}
