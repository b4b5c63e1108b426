package client

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Another try can't help with an untrusted certificate, or a server without TLS.
func TestAnUntrustedServerIsTriedOnce(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the server got a request")
	})
	quiet := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		return s
	}
	secure := quiet(httptest.NewUnstartedServer(handler))
	plain := quiet(httptest.NewUnstartedServer(handler))
	secure.StartTLS()
	defer secure.Close()
	plain.Start()
	defer plain.Close()
	for _, url := range []string{secure.URL, strings.Replace(plain.URL, "http:", "https:", 1)} {
		c, err := New(url,
			Config{Key: testKey, HTTPClient: &http.Client{Transport: &http.Transport{}}})
		if err != nil {
			t.Fatal(err)
		}
		var e *Error
		_, err = c.Submit(t.Context(), anyJob)
		if !errors.As(err, &e) || e.Status != 0 || e.Attempts != 1 || e.GaveUp != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
