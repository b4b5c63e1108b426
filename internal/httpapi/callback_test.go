package httpapi_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/testforebay"
)

// callbacks allows one host, and puts down a URL for one client.
type callbacks struct{ client, own string }

func (c callbacks) For(client, asked string) (string, error) {
	switch {
	case asked == "" && client == c.client:
		return c.own, nil
	case asked == "" || strings.HasPrefix(asked, "https://example.com/"):
		return asked, nil
	}
	return "", errors.New("the host isn't allowed")
}

func TestAJobSaysWhereItsEndIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Callbacks = callbacks{client: w.ClientA(), own: "https://example.com/own"}
		}
	})
	submit := func(callback string, fields ...[2]string) answer {
		return w.Call("POST", w.URL+"/v1/jobs",
			`{"operation":"`+w.Plain+`","payload":1`+callback+`}`, fields...)
	}
	for _, c := range []struct{ callback, key, want string }{
		{`,"callback_url":"https://example.com/a"`, keyA, "https://example.com/a"},
		{``, keyA, "https://example.com/own"},
		{`,"callback_url":null`, keyB, ""},
		{``, keyB, ""},
	} {
		a := w.Want(submit(c.callback, key(c.key)), http.StatusAccepted)
		if got := w.Job(a).CallbackURL; got != c.want {
			t.Errorf("%s: told to %q, want %q", c.callback, got, c.want)
		}
	}
	p := w.Problem(submit(`,"callback_url":"https://example.org/"`, key(keyA)),
		http.StatusUnprocessableEntity, api.CodeInvalidFields)
	if len(p.Errors) != 1 ||
		p.Errors[0] != (api.FieldError{Detail: "The host isn't allowed.",
			Pointer: "#/callback_url"}) {
		t.Errorf("%+v", p.Errors)
	}
	if n := w.Accepted(); n != 4 {
		t.Errorf("%d jobs", n)
	}
}

// Without webhooks, no request may ask for one.
func TestWithoutCallbacksNoneMayBeAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.Call("POST", w.URL+"/v1/jobs",
		`{"operation":"`+w.Plain+`","payload":1,"callback_url":"https://example.com/"}`, key(keyA))
	if p := w.Problem(a, http.StatusUnprocessableEntity,
		api.CodeInvalidFields); len(p.Errors) != 1 || p.Errors[0].Pointer != "#/callback_url" {
		t.Errorf("%+v", p.Errors)
	}
	w.Want(w.Call("POST", w.URL+"/v1/jobs",
		`{"operation":"`+w.Plain+`","payload":1,"callback_url":null}`, key(keyA)),
		http.StatusAccepted)
}
