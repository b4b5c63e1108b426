package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// newHTTPClient returns a client that returns answers as they are, without decompressing or
// following redirects. Its connections come from the given address; nil means any.
func newHTTPClient(from net.Addr) *http.Client {
	dialer := &net.Dialer{LocalAddr: from}
	return &http.Client{
		Timeout: 45 * time.Second, // over the longest Prefer: wait
		// Idle connections are closed long before the service closes them: this client doesn't
		// repeat a request whose connection is closed.
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableCompression: true,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// request is a request of a story; {n} in its header and body stands for its number.
type request struct {
	method string
	urls   []string // taken in turn
	header http.Header
	body   string
	from   string // source address on the loopback; "": any
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration // to its header
}

// parseRequest parses [-H 'NAME: VALUE'] [-from ADDRESS] [-d BODY|-f FILE] METHOD URL[,URL...] and
// returns the arguments after it. own adds the command's own flags.
func (s *story) parseRequest(args []string,
	own func(flags *flag.FlagSet)) (request, []string, error) {
	flags := newFlags("http")
	data := flags.String("d", "", "")
	file := flags.String("f", "", "")
	r := request{header: headerFlag(flags)}
	flags.StringVar(&r.from, "from", "", "")
	if own != nil {
		own(flags)
	}
	if err := flags.Parse(args); err != nil {
		return request{}, nil, err
	}
	args = flags.Args()
	if len(args) < 2 {
		return request{}, nil, errors.New("METHOD and URL are needed")
	}
	r.method, r.urls, r.body, args = args[0], strings.Split(args[1], ","), *data, args[2:]
	if *file != "" {
		r.body = s.ts.ReadFile(*file)
	}
	if r.body != "" && r.header.Get("Content-Type") == "" {
		r.header.Set("Content-Type", "application/json")
	}
	if len(args) > 0 && args[0] != "->" {
		return request{}, nil, fmt.Errorf("%q: expectations come after ->", args[0])
	}
	return r, args[min(1, len(args)):], nil
}

// send sends the request's n-th instance and reads the answer.
func (s *story) send(r request, n int) (reply, error) {
	fill := func(text string) string { return strings.ReplaceAll(text, "{n}", fmt.Sprint(n)) }
	url := fill(r.urls[n%len(r.urls)])
	var body io.Reader
	if r.body != "" {
		// A type that net/http doesn't know, so that it doesn't send the body again by itself.
		body = struct{ io.Reader }{strings.NewReader(fill(r.body))}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), r.method, url, body)
	if err != nil {
		return reply{}, err
	}
	req.ContentLength = int64(len(fill(r.body)))
	for name, values := range r.header {
		for _, value := range values {
			req.Header[name] = append(req.Header[name], fill(value))
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host // net/http ignores the field
	}
	began := time.Now()
	resp, err := s.client(r.from).Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	got := reply{status: resp.StatusCode, header: resp.Header, took: time.Since(began)}
	if resp.Close {
		got.header.Set("Connection", "close") // net/http removes the field
	}
	read := time.Now()
	if got.body, err = io.ReadAll(resp.Body); err != nil {
		return reply{}, err
	}
	if got.status == http.StatusAccepted {
		if id, err := got.pointer("/job_id"); err == nil {
			s.mu.Lock()
			s.accepted[id] = read
			s.mu.Unlock()
		}
	}
	return got, nil
}

// client returns the client for requests from an address.
func (s *story) client(from string) *http.Client {
	if from == "" {
		return s.http
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.elsewhere[from] == nil {
		s.elsewhere[from] = newHTTPClient(&net.TCPAddr{IP: net.ParseIP(from)})
	}
	return s.elsewhere[from]
}

// http [-H 'NAME: VALUE'] [-from ADDRESS] [-d BODY|-f FILE] [-lose] METHOD URL [-> EXPECTATION...]
//
// sends a request and checks the answer against every expectation (expect_test.go). With -lose the
// answer is never read.
func httpCommand(s *story, args []string) error {
	lose := false
	r, wants, err := s.parseRequest(args, func(flags *flag.FlagSet) {
		flags.BoolVar(&lose, "lose", false, "")
	})
	if err != nil {
		return err
	}
	if lose {
		return s.lose(r)
	}
	got, err := s.send(r, 0)
	if err != nil {
		return err
	}
	for _, want := range wants {
		if err := s.expect(got, want); err != nil {
			return fmt.Errorf("%s %s: %w; the answer is\n%s", r.method, r.urls[0], err, got)
		}
	}
	return nil
}

// String formats an answer for people.
func (r reply) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d after %v\n", r.status, r.took.Round(time.Millisecond))
	r.header.Write(&out)
	fmt.Fprintf(&out, "\n%q", r.body[:min(len(r.body), 2000)])
	return out.String()
}

// pointer returns the value of a JSON Pointer in the body: a string as it is, other values as JSON.
func (r reply) pointer(pointer string) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(r.body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "", fmt.Errorf("the body isn't JSON: %w", err)
	}
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		found := false
		switch v := value.(type) {
		case map[string]any:
			value, found = v[step]
		case []any:
			var i int
			if _, err := fmt.Sscanf(step, "%d", &i); err == nil && i >= 0 && i < len(v) {
				value, found = v[i], true
			}
		}
		if !found {
			return "", fmt.Errorf("nothing at %s", pointer)
		}
	}
	if text, ok := value.(string); ok {
		return text, nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}
