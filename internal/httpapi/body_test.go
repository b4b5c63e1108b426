package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// Case C96: a refused request queues nothing.
func TestABodyThatIsWrongIsRefusedWithWhatAndWhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	op := `"operation":"` + w.Plain + `"`
	for name, c := range map[string]struct {
		body   string
		status int
		code   string
		says   string // in detail, or in the pointers of the fields
	}{
		"blank":    {"  \n", 400, api.CodeInvalidRequest, "empty"},
		"not JSON": {`{"operation"`, 400, api.CodeInvalidRequest, "byte 12"},
		"an array": {`[1]`, 400, api.CodeInvalidRequest, "object"},
		"a string": {`"x"`, 400, api.CodeInvalidRequest, "object"},
		"invalid UTF-8": {`{` + op + `,"payload":"` + "\xff\xfe" + `"}`, 400,
			api.CodeInvalidRequest, "UTF-8"},
		"a raw NUL": {`{` + op + `,"payload":"` + "\x00" + `"}`, 400,
			api.CodeInvalidRequest, "byte"},
		"a byte order mark": {"\ufeff{" + op + `,"payload":1}`, 400, api.CodeInvalidRequest,
			"JSON"},
		"trailing garbage": {`{` + op + `,"payload":1} x`, 400, api.CodeInvalidRequest,
			"after top-level value"},
		"two values": {`{` + op + `,"payload":1}{}`, 400, api.CodeInvalidRequest,
			"after top-level value"},
		"a field twice": {`{` + op + `,"payload":1,"payload":2}`, 400,
			api.CodeInvalidRequest, `"payload" is given twice`},
		"twice by escape": {`{` + op + `,"payload":1,"p\u0061yload":2}`, 400,
			api.CodeInvalidRequest, `"payload" is given twice`},
		"nested 10,000 deep": {`{` + op + `,"payload":` + strings.Repeat("[", 10_000) +
			strings.Repeat("]", 10_000) + `}`, 400, api.CodeInvalidRequest, "JSON"},
		"nested 128 deep": {`{` + op + `,"payload":` + strings.Repeat("[", 128) +
			strings.Repeat("]", 128) + `}`, 400, api.CodeInvalidRequest, "deeper than 128"},
		"too many fields": {`{` + op + manyFields(40) + `}`, 400, api.CodeInvalidRequest,
			"more than 32 fields"},
		"another case": {`{"Operation":"` + w.Plain + `","payload":1}`, 422,
			api.CodeInvalidFields, "#/Operation #/operation"},
		"an unknown field": {`{` + op + `,"payload":1,"callback":"http://x"}`, 422,
			api.CodeInvalidFields, "#/callback"},
		"a name to be escaped": {`{` + op + `,"payload":1,"a/~ b":1}`, 422, api.CodeInvalidFields,
			"#/a~1~0%20b"},
		"no operation": {`{"payload":1}`, 422, api.CodeInvalidFields, "#/operation"},
		"operation a number": {`{"operation":1,"payload":1}`, 422, api.CodeInvalidFields,
			"#/operation"},
		"no payload": {`{` + op + `}`, 422, api.CodeInvalidFields, "#/payload"},
		"all wrong": {`{"operation":[],"priority":"urgent","start_within":30}`, 422,
			api.CodeInvalidFields, "#/operation #/priority #/start_within #/payload"},
		"empty priority": {`{` + op + `,"payload":1,"priority":""}`, 422,
			api.CodeInvalidFields, "#/priority"},
		"no unit": {`{` + op + `,"payload":1,"start_within":"90"}`, 422,
			api.CodeInvalidFields, "#/start_within"},
		"negative": {`{` + op + `,"payload":1,"start_within":"-5s"}`, 422,
			api.CodeInvalidFields, "#/start_within"},
		"empty duration": {`{` + op + `,"payload":1,"start_within":""}`, 422,
			api.CodeInvalidFields, "#/start_within"},
		"under a millisecond": {`{` + op + `,"payload":1,"start_within":"1ns"}`, 422,
			api.CodeInvalidFields, "#/start_within"},
		"callback a number": {`{` + op + `,"payload":1,"callback_url":1}`, 422,
			api.CodeInvalidFields, "#/callback_url"},
		"empty callback": {`{` + op + `,"payload":1,"callback_url":""}`, 422,
			api.CodeInvalidFields, "#/callback_url"},
		"long callback": {`{` + op + `,"payload":1,"callback_url":"https://x/` +
			strings.Repeat("y", 512) + `"}`, 422, api.CodeInvalidFields, "#/callback_url"},
		"too large": {`{` + op + `,"payload":"` + strings.Repeat("x", 64<<10) + `"}`,
			413, api.CodeTooLarge, "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.Call("POST", w.URL+"/v1/jobs", c.body, key(keyA))
			p := w.Problem(a, c.status, c.code)
			said := p.Detail
			if c.status == 422 {
				var pointers []string
				for _, e := range p.Errors {
					pointers = append(pointers, e.Pointer)
				}
				said = strings.Join(pointers, " ")
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("says %q, want %q", said, c.says)
			}
			if want := `rejected;reason="` + c.code +
				`"`; a.Header.Get("Forebay-Decision") != want {
				t.Errorf("Forebay-Decision: %s, want %s", a.Header.Get("Forebay-Decision"), want)
			}
		})
	}
	if w.Accepted() != 0 {
		t.Errorf("%d jobs were queued", w.Accepted())
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"f` + strings.Repeat("x", i) + `":1`)
	}
	return b.String()
}

func TestABodyMustSayThatItIsJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := `{"operation":"` + w.Plain + `","payload":1}`
	for given, status := range map[string]int{
		"application/json": 202, "Application/JSON; charset=UTF-8": 202,
		"application/json;v=1": 202,
		"text/plain":           415, "application/x-www-form-urlencoded": 415,
		"application/jsonx":        415,
		"application/problem+json": 415, "": 415, ";": 415,
	} {
		w.Want(w.Call("POST", w.URL+"/v1/jobs", body, key(keyA), field("Content-Type", given)),
			status)
	}
	w.Problem(w.Call("POST", w.URL+"/v1/jobs", body, key(keyA), field("Content-Encoding", "gzip")),
		415, api.CodeMediaType)
}

// Cases C96 and C97: what is accepted reaches the backend byte for byte, and the result the client.
func TestPayloadsAndResultsAreNeverChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, text := range map[string]string{
		"large integers":   `{"id":616581622363398142,"n":[9007199254740993,1e400,1.10,-0,1E+2]}`,
		"key order":        `{"z":1,"a":2,"z":3}`,
		"lone surrogates":  `"\ud800 \udfff"`,
		"an escaped NUL":   `"\u0000"`,
		"white space":      "{\n\t\"a\" :  [ 1 , 2 ]\r\n }",
		"text":             `"}],{\"\\ü€𝄞<>&"`,
		"null":             `null`,
		"nested 127 deep":  strings.Repeat("[", 127) + strings.Repeat("]", 127),
		"a string's brace": `{"a":"{\"b\":[}"}`,
	} {
		t.Run(name, func(t *testing.T) {
			job := w.Job(w.Want(w.Submit(w.Plain, " "+text+"\n", key(keyA)), http.StatusAccepted))
			var got leaky.Started
			ticket := w.StartWith(job.ID, &got)
			if string(got.Job.Payload) != text {
				t.Errorf("the backend gets %q, the client sent %q", got.Job.Payload, text)
			}
			w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded, Body: []byte(text),
				Result: jobs.Meta{Status: 200, ContentType: "application/json",
					Size: int64(len(text))}})
			if a := w.Want(w.Get("/v1/jobs/"+job.ID+"/result", key(keyA)),
				200); string(a.Text) != text {
				t.Errorf("the client gets %q, the backend sent %q", a.Text, text)
			}
		})
	}
}

// Case C48.
func TestWhatClientsChooseHasABound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, n := range []int{1, 255, 256, 10_000, 15_000} {
		k := strings.Repeat("k", n)
		a := w.Submit(w.Plain, `1`, key(keyA), idempotent(k))
		if n <= 255 {
			w.Want(a, http.StatusAccepted)
		} else {
			w.Problem(a, http.StatusBadRequest, api.CodeInvalidIdempotencyKey)
		}
		if a := w.Submit(w.Plain, `1`, key(k)); n > 512 {
			w.Problem(a, http.StatusBadRequest, api.CodeInvalidCredentials)
		} else {
			w.Problem(a, http.StatusUnauthorized, api.CodeInvalidCredentials)
		}
		if n > 64 {
			p := w.Problem(w.Submit(k, `1`, key(keyA)), http.StatusNotFound,
				api.CodeUnknownOperation)
			if len(p.Detail) > 120 {
				t.Errorf("the answer repeats %d bytes of an operation's name", len(p.Detail))
			}
		}
	}
	keys, err := w.Redis.Keys(context.Background(), "fb:{"+w.Backend+"}*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if len(k) > 128 {
			t.Errorf("a key of %d bytes", len(k))
		}
	}
	if strings.Contains(w.Logs.String(), strings.Repeat("k", 20)) {
		t.Error("a key is in the log")
	}
}

// Case C48: what is over the bound of all headers never reaches a handler.
func TestHeadersOfAMegabyteAreRefusedByTheListener(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	front := web.NewHTTPServer(w.Server.Public(), w.Server.Web.Log)
	url := listen(t, front)
	r, err := http.NewRequest("POST", url+"/v1/jobs", bytes.NewReader([]byte(`{}`)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", strings.Repeat("k", 1<<20))
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return // the connection was closed while the header was still being sent
	}
	a.Body.Close()
	if a.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s, want 431", a.Status)
	}
}

// With Content-Length beside Transfer-Encoding a proxy in front may differ on where the request
// ends: what follows it on the connection isn't read as a request.
func TestTransferEncodingClosesTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	front := listen(t, web.NewHTTPServer(w.Server.Public(), w.Server.Web.Log))
	conn, err := net.Dial("tcp", strings.TrimPrefix(front, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	body := `{"operation":"` + w.Plain + `","payload":1}`
	fmt.Fprintf(conn,
		"POST /v1/jobs HTTP/1.1\r\nHost: forebay\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\n"+
			"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"+
			"GET /livez HTTP/1.1\r\nHost: forebay\r\n\r\n", keyA, len(body), body)
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(all); !strings.HasPrefix(text, "HTTP/1.1 202 ") ||
		!strings.Contains(text, "\r\nConnection: close\r\n") {
		t.Errorf("the answer is %s", text)
	}
	if n := strings.Count(string(all), "HTTP/1.1 "); n != 1 {
		t.Errorf("%d answers came: %s", n, all)
	}
}

// So it is whatever answers: also what net/http would answer by itself, and a handler that isn't of
// this package.
func TestTransferEncodingClosesTheConnectionWhoeverAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	others := web.NewHTTPServer(http.NotFoundHandler(), w.Server.Web.Log)
	for _, at := range []struct{ url, asks string }{
		{listen(t, web.NewHTTPServer(w.Server.Public(), w.Server.Web.Log)), "OPTIONS *"},
		{listen(t, web.NewHTTPServer(w.Operators.Handler(), w.Server.Web.Log)), "GET /livez"},
		{listen(t, others), "GET /livez"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(at.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn,
			"%s HTTP/1.1\r\nHost: forebay\r\n"+
				"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
				"GET /livez HTTP/1.1\r\nHost: forebay\r\n\r\n", at.asks)
		all, err := io.ReadAll(conn)
		if n := strings.Count(string(all), "HTTP/1.1 "); err != nil || n != 1 {
			t.Errorf("%s: %d answers came, %v: %s", at.asks, n, err, all)
		}
	}
}
