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

// A certificate that isn't trusted, and a server that doesn't speak TLS, won't be otherwise in a second.
func TestAServerThatIsntTheRightOneIsAskedOnce(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	quiet := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		return s
	}
	secure, plain := quiet(httptest.NewUnstartedServer(handler)), quiet(httptest.NewUnstartedServer(handler))
	secure.StartTLS()
	defer secure.Close()
	plain.Start()
	defer plain.Close()
	for _, url := range []string{secure.URL, strings.Replace(plain.URL, "http:", "https:", 1)} {
		c, err := New(url, Config{Key: testKey, HTTPClient: &http.Client{Transport: &http.Transport{}}})
		if err != nil {
			t.Fatal(err)
		}
		var e *Error
		if _, err := c.Submit(t.Context(), anyJob); !errors.As(err, &e) || e.Status != 0 || e.Attempts != 1 || e.GaveUp != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
