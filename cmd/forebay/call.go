package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/client"
)

const (
	callTimeout = 30 * time.Second
	maxAnswer   = 64 << 20 // bytes, since an answer is held in memory; no list is longer
)

// call is a call that package client doesn't have: the operators', and explain.
type call struct {
	method string
	path   string     // from /admin/ or /v1/ on
	query  url.Values // nil: none
	body   any        // nil: none
	match  string     // If-Match; "": none

	lastEvent string // Last-Event-ID; "": none
}

// reading is a call that changes nothing.
func reading(path string, query url.Values) call {
	return call{method: http.MethodGet, path: path, query: query}
}

// answer is a whole answer of the 200s.
type answer struct {
	body []byte
	tag  string // its ETag
}

// decode reads the answer's JSON.
func (r answer) decode(c call, into any) error {
	if err := json.Unmarshal(r.body, into); err != nil {
		return &client.Error{Call: c.String(), Status: http.StatusOK, Err: err}
	}
	return nil
}

func (c call) String() string { return c.method + " " + c.path }

// do makes a call once. Its error is a *client.Error.
func (a *app) do(ctx context.Context, c call) (answer, error) {
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := a.send(within, c, "application/json")
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer{}, &client.Error{Call: c.String(), Err: err}
	}
	if !isA(res, "application/json") {
		return answer{}, &client.Error{Call: c.String(), Status: res.StatusCode}
	}
	return answer{body: body, tag: res.Header.Get("ETag")}, nil
}

// send sends a call, and returns an answer of the 200s whose body is unread.
func (a *app) send(ctx context.Context, c call, accept string) (*http.Response, error) {
	base, secret := a.settled.URL, a.settled.Key
	if strings.HasPrefix(c.path, "/admin/") {
		base, secret = a.settled.AdminURL, a.settled.AdminToken
	}
	if u, err := url.Parse(base); err != nil || u.Host == "" ||
		u.Scheme != "http" && u.Scheme != "https" {
		return nil, &failure{code: exitUsage,
			text: "the server's URL has to begin with http:// or https:// and a host"}
	}
	query := url.Values{}
	for name, values := range c.query {
		if len(values) > 0 && values[0] != "" {
			query[name] = values
		}
	}
	target := strings.TrimRight(base, "/") + c.path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var body io.Reader
	if c.body != nil {
		data, err := json.Marshal(c.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, c.method, target, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.match != "" {
		r.Header.Set("If-Match", c.match)
	}
	if c.lastEvent != "" {
		r.Header.Set("Last-Event-ID", c.lastEvent)
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	if user := a.variable("USER"); c.method != http.MethodGet && user != "" {
		r.Header.Set(api.HeaderOperator, user)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("User-Agent", "forebay-cli")
	res, err := httpClient.Do(r)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errTimeout) {
			err = cause
		}
		return nil, &client.Error{Call: c.String(), Err: err}
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, refusal(c, res)
}

// httpClient follows no redirect: a secret stays with its server.
var httpClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
	return http.ErrUseLastResponse
}}

// isA reports whether an answer has a media type.
func isA(res *http.Response, kind string) bool {
	is, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return is == kind
}

// refusal is the error of an answer outside of the 200s.
func refusal(c call, res *http.Response) error {
	e := &client.Error{Call: c.String(), Status: res.StatusCode}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // a part of one is no problem
	var p api.Problem
	if !isA(res, "application/problem+json") || json.Unmarshal(body, &p) != nil {
		return e
	}
	e.Problem, e.Code, e.Reason = &p, p.Code, p.Reason
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// present makes a call, and writes its answer: for people as the text that write makes of it, for
// programs as JSON or the values of a table; nil: a flat one. It returns the answer too.
func present[T any](ctx context.Context, a *app, c call, write func(T) string,
	values func(T) table) (v T, err error) {
	raw, err := a.get(ctx, c, &v)
	switch {
	case err != nil:
		return v, err
	case a.form() == "table":
		return v, a.showText(write(v))
	case values == nil:
		return v, a.showFlat(raw, columnsOf(reflect.TypeFor[T]()))
	}
	return v, a.show(raw, values(v))
}

// make makes a call, and writes what comes.
func (a *app) make(ctx context.Context, c call) error {
	r, err := a.do(ctx, c)
	if err != nil {
		return err
	}
	return a.showFlat(r.body, nil)
}

// showFlat writes an answer as it came. See flat.
func (a *app) showFlat(raw json.RawMessage, columns []string) error {
	t, err := flat(raw, columns)
	if err != nil {
		return err
	}
	return a.show(raw, t)
}

// get makes a call, and reads its JSON into v. It returns the JSON too, which may have members of a
// newer server.
func (a *app) get(ctx context.Context, c call, v any) (json.RawMessage, error) {
	r, err := a.do(ctx, c)
	if err != nil {
		return nil, err
	}
	return r.body, r.decode(c, v)
}
