package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
)

func TestInvalidConfigsAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "forebay.test", "ftp://forebay.test", "http://", "http://user:secret@forebay.test",
		"http://forebay.test/?key=secret", "http://forebay.test/#x", "http://a b/secret",
		"\nsecret",
	} {
		if _, err := New(url, Config{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, c := range []Config{
		{Key: "two words"}, {Key: "secret\r\nX: y"}, {Key: "clé"}, {Timeout: -1}, {MaxBody: -1},
		{Backoff: Backoff{Base: -1}}, {Backoff: Backoff{Cap: -1}},
		{Backoff: Backoff{Base: 2, Cap: 1}}, {Backoff: Backoff{Jitter: 3}},
		{Backoff: Backoff{Jitter: -1}},
	} {
		if _, err := New("http://forebay.test", c); err == nil ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := New("http://forebay.test", Config{Backoff: Backoff{Base: time.Hour}}); err != nil {
		t.Errorf("a Base alone: %v", err)
	}
}

// C129: behind a prefix, all calls carry it, whatever paths the server sends.
func TestAServerBehindAPrefixIsFound(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "/", "/jobs/ui", "/jobs/ui/"} {
		var paths []string
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			paths = append(paths, r.Method+" "+r.URL.Path)
			io.WriteString(w, done("reports-1"))
		})
		server := httptest.NewServer(mux)
		c, err := New(server.URL+base, Config{})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := c.Submit(t.Context(), anyJob)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			second(c.Wait(t.Context(), sub.JobID)), second(c.Result(t.Context(), sub.JobID)),
			second(c.Cancel(t.Context(), sub.JobID)),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		server.Close()
		at := strings.TrimRight(base, "/") + "/v1/jobs"
		job := at + "/reports-1"
		want := fmt.Sprint([]string{
			"POST " + at, "GET " + job, "GET " + job + "/result", "DELETE " + job,
		})
		if got := fmt.Sprint(paths); got != want {
			t.Errorf("%q: %s, want %s", base, got, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAnInvalidIDSendsNothing(t *testing.T) {
	t.Parallel()
	s := script(200)
	c := over(t, s, Config{})
	for _, id := range []string{"", ".", "..", "a/../b", "a?b", "a#b", "a b", "a\nb", "%2e"} {
		for _, err := range []error{
			second(c.Status(t.Context(), id)), second(c.Wait(t.Context(), id)),
			second(c.Result(t.Context(), id)), second(c.Cancel(t.Context(), id)),
			c.Purge(t.Context(), id),
		} {
			if err == nil {
				t.Errorf("%q: no error", id)
			}
		}
	}
	if len(s.seen) != 0 {
		t.Errorf("%d requests", len(s.seen))
	}
}

// The key is in the Authorization field alone.
func TestTheKeyIsInNoText(t *testing.T) {
	t.Parallel()
	s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
		if n == 1 {
			return nil, errors.New("connection refused")
		}
		return refuse(401, "invalid_credentials", ""), nil
	}}
	c := over(t, s, Config{MaxAttempts: 1})
	status := func() error { return second(c.Status(t.Context(), "reports-1")) }
	first, then := status(), status()
	if s.seen[1].Header.Get("Authorization") != "Bearer "+testKey {
		t.Errorf("Authorization %q", s.seen[1].Header.Get("Authorization"))
	}
	for _, text := range []string{
		first.Error(), then.Error(), fmt.Sprintf("%+v %#v", first, then),
		fmt.Sprintf("%+v %#v %v", c, c, *c),
	} {
		if strings.Contains(text, testKey) {
			t.Error(text)
		}
	}
	if _, err := over(t, s, Config{}).Status(t.Context(), "reports-1"); err == nil {
		t.Error("no error")
	}
	anonymous, err := New("http://forebay.test", Config{HTTPClient: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	anonymous.Status(t.Context(), "reports-1")
	if got := s.seen[len(s.seen)-1].Header["Authorization"]; got != nil {
		t.Errorf("without a key: %q", got)
	}
}

// C58: a 307 or 308 of the same host gets the same request. The key is sent to no other host.
func TestRedirectsAreFollowedWithinTheHostAlone(t *testing.T) {
	t.Parallel()
	var strayed int
	abroad := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		strayed++
	}))
	defer abroad.Close()
	var bodies []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /moved/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/v1/jobs", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies,
			string(b)+r.Header.Get("Authorization")+r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, queued("reports-1"))
	})
	mux.HandleFunc("/abroad/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, abroad.URL+"/v1/jobs", http.StatusPermanentRedirect)
	})
	mux.HandleFunc("/other/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/v1/jobs", http.StatusSeeOther) // would change the call to a GET
	})
	mux.HandleFunc("/loop/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	})
	home := httptest.NewServer(mux)
	defer home.Close()
	submit := func(path string) error {
		c, err := New(home.URL+path, Config{Key: testKey, HTTPClient: home.Client()})
		if err != nil {
			t.Fatal(err)
		}
		return second(c.Submit(t.Context(), anyJob))
	}
	if err := submit("/moved"); err != nil {
		t.Error(err)
	}
	want := `{"operation":"report","payload":` + string(anyJob.Payload) + `}Bearer ` + testKey +
		"application/json"
	if len(bodies) != 1 || bodies[0] != want {
		t.Errorf("%q", bodies)
	}
	for path, status := range map[string]int{"/abroad": 308, "/other": 303, "/loop": 307} {
		var e *Error
		err := submit(path)
		if !errors.As(err, &e) || e.Status != status || e.Attempts != 1 ||
			!errors.Is(err, errRedirect) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if strayed != 0 {
		t.Errorf("%d requests went to another host", strayed)
	}
	if home.Client().CheckRedirect != nil {
		t.Error("the caller's HTTP client was changed")
	}
}

func TestAnAnswersBodyIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 1 << 16
	for size, fits := range map[int64]bool{bound: true, bound + 1: false, 1 << 40: false} {
		s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
			r := reply(200, "")
			r.Body, r.ContentLength = endless(size), -1
			return r, nil
		}}
		result, err := over(t, s, Config{MaxBody: bound}).Result(t.Context(), "reports-1")
		var e *Error
		switch {
		case fits && (err != nil || len(result.Body) != bound):
			t.Errorf("%d bytes: %v", size, err)
		case !fits && (!errors.Is(err, errTooLarge) || !errors.As(err, &e) || e.Status != 200 ||
			len(s.seen) != 1):
			t.Errorf("%d bytes: %v after %d tries", size, err, len(s.seen))
		}
	}
	s := &stub{answer: func(int, *http.Request) (*http.Response, error) {
		r := reply(400, "", "Content-Type: application/problem+json")
		r.Body, r.ContentLength = endless(1<<40), -1
		return r, nil
	}}
	var e *Error
	_, err := over(t, s, Config{MaxBody: bound}).Result(t.Context(), "reports-1")
	if !errors.As(err, &e) || e.Status != 400 || e.Problem != nil {
		t.Errorf("an endless problem: %v", err)
	}
}

// An error holds what is known, with or without a problem, and its causes can be found.
func TestErrorsAreTyped(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		ask := func(res *http.Response, err error) *Error {
			s := &stub{answer: func(int, *http.Request) (*http.Response, error) { return res, err }}
			_, err = over(t, s, Config{MaxAttempts: 1}).Status(ctx, "reports-1")
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%#v", err)
			}
			return e
		}
		e := ask(refuse(429, api.CodeRateLimit, "7"), nil)
		var p *api.Problem
		if !errors.As(error(e), &p) || p.Code != e.Code || e.Code != api.CodeRateLimit ||
			e.Reason != "per-minute" || e.RetryAfter != 7*time.Second {
			t.Errorf("%+v", e)
		}
		want := "forebay: GET /v1/jobs/reports-1: 429 rate_limit_exceeded: D.; " +
			"it asked for a wait of 7s; given up: MaxAttempts tries were made"
		if e.Error() != want {
			t.Errorf("%s, want\n%s", e, want)
		}
		e = ask(reply(502, "<html>", "Content-Type: text/html"), nil)
		if e.Status != 502 || e.Problem != nil || e.Code != "" ||
			!strings.Contains(e.Error(), "502 Bad Gateway") {
			t.Errorf("%+v", e)
		}
		e = ask(reply(503, `{"code":"x","retry_after":4}`,
			"Content-Type: application/problem+json; charset=utf-8"), nil)
		if e.RetryAfter != 4*time.Second {
			t.Errorf("a wait in the problem alone: %+v", e)
		}
		e = ask(reply(503, `not json`, "Content-Type: application/problem+json"), nil)
		if e.Status != 503 || e.Problem != nil {
			t.Errorf("%+v", e)
		}
		cause := errors.New("no route")
		if e := ask(nil, cause); !errors.Is(e, cause) || e.Status != 0 ||
			!errors.Is(e, ErrTooOften) {
			t.Errorf("%+v", e)
		}
		for _, body := range []string{"", "{}", "<html>", `{"job_id":7}`} {
			e := ask(reply(200, body), nil)
			if e.Status != 200 || !errors.Is(e, errForeign) || e.Attempts != 1 {
				t.Errorf("%q: %+v", body, e)
			}
		}
	})
}
