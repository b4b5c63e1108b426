package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forebay/forebay/cmd/internal/front"
	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/redistest"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

func TestMain(m *testing.M) { redistest.Main(m) }

// The stories of testdata: each command against a server, as a script sees it and as a person does.
func TestStories(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Values[storyKey{}] = &story{t: env.T().(testing.TB), env: env}
			env.Setenv("FOREBAY_CONTEXTS", filepath.Join(env.WorkDir, "contexts.json"))
			env.Setenv("USER", "kim")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"forebay": forebayCommand, "start": startCommand, "stub": stubCommand,
			"asked": askedCommand, "until": untilCommand, "mode": modeCommand,
		},
		RequireUniqueNames: true,
	})
}

type storyKey struct{}

// story is the state of one script.
type story struct {
	t   testing.TB
	env *testscript.Env

	mu    sync.Mutex
	asked []string // guarded by mu: the stub's requests
}

// screenOf is a stream that counts as a terminal.
type screenOf struct {
	io.Reader
	io.Writer
}

// runForebay runs the command. With terminal, all of its streams are one.
func runForebay(ctx context.Context, env func(string) (string, bool), stdin string,
	stdout, stderr io.Writer, terminal bool, args ...string) int {
	p := process{args: args, env: env, stdin: screenOf{Reader: strings.NewReader(stdin)},
		stdout: screenOf{Writer: stdout}, stderr: screenOf{Writer: stderr},
		isTerminal: func(any) bool { return terminal }}
	return run(ctx, p)
}

// forebayCommand is forebay [-tty] [-in TEXT] [-for DURATION] EXIT ARG...: it runs the command,
// which has to end with that code. $NAME takes the first word of stdout with -to NAME.
func forebayCommand(ts *testscript.TestScript, _ bool, args []string) {
	terminal, in, to, lasts := false, "", "", time.Minute
	for ; strings.HasPrefix(args[0], "-"); args = args[1:] {
		switch args[0] {
		case "-tty":
			terminal = true
			continue
		case "-in":
			in = args[1] + "\n"
		case "-to":
			to = args[1]
		case "-for":
			var err error
			lasts, err = time.ParseDuration(args[1])
			ts.Check(err)
		}
		args = args[1:]
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	env := func(name string) (string, bool) {
		value := ts.Getenv(name)
		return value, value != ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var out, talk bytes.Buffer
	files := args[1:]
	for i, arg := range files {
		if file, is := strings.CutPrefix(arg, "@"); is {
			files[i] = "@" + ts.MkAbs(file)
		} else if strings.HasSuffix(arg, ".yaml") {
			files[i] = ts.MkAbs(arg)
		}
	}
	got := runForebay(ctx, env, in, &out, &talk, terminal, files...)
	fmt.Fprint(ts.Stdout(), out.String())
	fmt.Fprint(ts.Stderr(), talk.String())
	if got != want {
		ts.Fatalf("forebay %s ended with %d, not %d\n%s%s", strings.Join(args[1:], " "), got, want,
			out.String(), talk.String())
	}
	if to != "" {
		ts.Setenv(to, strings.Fields(out.String())[0])
	}
}

// untilCommand is until COMMAND...: it repeats a forebay command, at most for 20 s, until that ends
// with its code and stdout matches the pattern after "=>".
func untilCommand(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile(args[len(args)-1])
	args = args[:len(args)-2]
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	env := func(name string) (string, bool) {
		value := ts.Getenv(name)
		return value, value != ""
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var out bytes.Buffer
		got := runForebay(context.Background(), env, "", &out, &out, false, args[1:]...)
		if got == want && pattern.MatchString(out.String()) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%v ends with %d:\n%s", args, got, out.String())
		}
	}
}

// modeCommand is mode FILE 0600: the file has this mode, or gets it with !.
func modeCommand(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.ParseUint(args[1], 8, 32)
	ts.Check(err)
	if neg {
		ts.Check(os.Chmod(ts.MkAbs(args[0]), os.FileMode(want)))
		return
	}
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if info.Mode().Perm() != os.FileMode(want) {
		ts.Fatalf("%s has mode %o", args[0], info.Mode().Perm())
	}
}

// startCommand starts what forebay dev starts, or an api with the config that it is given, on free
// ports, and names it to the script.
func startCommand(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(storyKey{}).(*story)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	public, admin := freeAddress(s.t), freeAddress(s.t)
	flags := []string{"-listen", public, "-admin-listen", admin, "-log", "error"}
	if len(args) > 0 {
		text := strings.ReplaceAll(ts.ReadFile(args[0]), "REDIS", redistest.Start(s.t).URL())
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
		flags = append(flags, "-config", ts.MkAbs(args[0]))
	}
	log := &log{}
	go func() {
		ended <- front.Run(ctx, wire.Process{Args: flags, Stdout: io.Discard, Stderr: log,
			Env: func(string) (string, bool) { return "", false }})
	}()
	s.env.Defer(func() { stop(); <-ended })
	ts.Setenv("FOREBAY_URL", "http://"+public)
	ts.Setenv("FOREBAY_ADMIN_URL", "http://"+admin)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a, err := http.Get("http://" + public + "/readyz"); err == nil {
			a.Body.Close()
			if a.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			ts.Fatalf("the api isn't ready:\n%s", log)
		}
	}
}

// stubCommand is stub FILE: a server that answers as the file says, in lines of
// "METHOD /path?query STATUS TYPE FILE". It stands for servers that are older, newer or none of
// Forebay's, and for calls that this checkout doesn't have yet.
func stubCommand(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(storyKey{}).(*story)
	type reply struct {
		status     int
		kind, body string
	}
	replies := map[string]reply{}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		status, err := strconv.Atoi(f[2])
		ts.Check(err)
		replies[f[0]+" "+f[1]] = reply{status, f[3], ts.ReadFile(f[4])}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked = append(s.asked, fmt.Sprintf("%s %s accept=%s if-match=%s by=%s last=%s %s",
			r.Method, r.URL.RequestURI(), r.Header.Get("Accept"), r.Header.Get("If-Match"),
			r.Header.Get("Forebay-Operator"), r.Header.Get("Last-Event-ID"), body))
		s.mu.Unlock()
		a, known := replies[r.Method+" "+r.URL.RequestURI()]
		if !known {
			a = reply{404, "application/problem+json",
				`{"type":"about:blank","title":"Not Found","status":404,"code":"not_found"}`}
		}
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("ETag", `"v7"`)
		if a.status == 429 {
			w.Header().Set("Retry-After", "12")
		}
		w.WriteHeader(a.status)
		io.WriteString(w, a.body)
	}))
	s.env.Defer(server.Close)
	ts.Setenv("FOREBAY_URL", server.URL)
	ts.Setenv("FOREBAY_ADMIN_URL", server.URL)
}

// askedCommand writes the stub's requests to stdout.
func askedCommand(ts *testscript.TestScript, _ bool, _ []string) {
	s := ts.Value(storyKey{}).(*story)
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(ts.Stdout(), strings.Join(s.asked, "\n"))
}

type log struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l := httptest.NewUnstartedServer(nil).Listener
	defer l.Close()
	return l.Addr().String()
}

// Every way to write an answer has the same figures; as YAML, no text becomes another type.
func TestAnAnswerIsTheSameInEveryForm(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{"b":[{"name":"yes","n":12345678901234567890,"x":{"on":null}},` +
		`{"name":"a: b\n#","list":[]}],"a":{}}`)
	for form, want := range map[string]string{
		"json": `{
  "b": [
    {
      "name": "yes",
      "n": 12345678901234567890,
      "x": {
        "on": null
      }
    },
    {
      "name": "a: b\n#",
      "list": []
    }
  ],
  "a": {}
}
`,
		"yaml": `b:
    - name: "yes"
      "n": 12345678901234567890
      x:
        "on": null
    - name: "a: b\n#"
      list: []
a: {}
`,
	} {
		var out bytes.Buffer
		if err := writeTree(&out, raw, form); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s", form, err, out.String())
		}
	}
	table, err := flat(raw)
	var out bytes.Buffer
	table.write(&out, false)
	if want := "12345678901234567890\tyes\t\t\n\ta: b\ufffd#\t\t\n"; err != nil ||
		out.String() != want {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A moment of the past is written as people say it; a time that hasn't come today was yesterday.
func TestMomentsOfThePast(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 16, 2, 0, 0, time.UTC)
	for said, want := range map[string]string{
		"15:59": "2026-11-30T15:59:00Z", "16:03": "2026-11-29T16:03:00Z",
		"15:59:30": "2026-11-30T15:59:30Z", "20m": "2026-11-30T15:42:00Z",
		"2d": "2026-11-28T16:02:00Z", "2026-11-01 10:00": "2026-11-01T10:00:00Z",
		"2026-11-30T15:59:00+01:00": "2026-11-30T14:59:00Z",
	} {
		if got, err := past(said, now); err != nil || stamp(got) != want {
			t.Errorf("%s: %v, %v", said, stamp(got), err)
		}
	}
	if _, err := past("soon", now); err == nil {
		t.Error("soon is taken for a moment")
	}
}

// docs/cli.md has each command as its help does.
func TestTheReferenceIsTrue(t *testing.T) {
	t.Parallel()
	a := &app{process: process{env: func(string) (string, bool) { return "", false }}}
	page := reference(a.root())
	const file = "../../docs/cli.md"
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil || string(kept) != page {
		t.Errorf("%s isn't what the commands' help says (%v): run "+
			"`go test ./cmd/forebay -run Reference -update`", file, err)
	}
}
