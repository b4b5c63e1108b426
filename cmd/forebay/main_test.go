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
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/cmd/internal/front"
	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/redistest"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// runMain is set in the environment of processes that are forebay.
const runMain = "FOREBAY_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	redistest.Main(m)
}

// The stories of testdata: each command against a server, as a script sees it and as a person does.
func TestStories(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Values[storyKey{}] = &story{t: env.T().(testing.TB), env: env,
				backend: &fragile{}}
			env.Setenv("FOREBAY_CONTEXTS", filepath.Join(env.WorkDir, "contexts.json"))
			env.Setenv("USER", "kim")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"forebay": forebayCommand, "start": startCommand, "stub": stubCommand,
			"asked": askedCommand, "until": untilCommand, "mode": modeCommand,
			"backend": backendCommand, "rival": rivalCommand,
		},
		RequireUniqueNames: true,
	})
}

type storyKey struct{}

// story is the state of one script.
type story struct {
	t       testing.TB
	env     *testscript.Env
	backend *fragile

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
// which has to end with that code. $NAME takes the first word of stdout with -to NAME, and the last
// one with -last NAME.
func forebayCommand(ts *testscript.TestScript, _ bool, args []string) {
	terminal, in, to, last, lasts := false, "", "", "", time.Minute
	for ; strings.HasPrefix(args[0], "-"); args = args[1:] {
		switch args[0] {
		case "-tty":
			terminal = true
			continue
		case "-in":
			in = args[1] + "\n"
		case "-to":
			to = args[1]
		case "-last":
			last = args[1]
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
	// On a busy machine the store may be late for some, and says so.
	for got != want && ctx.Err() == nil && strings.Contains(talk.String(), "store_unavailable") {
		out.Reset()
		talk.Reset()
		got = runForebay(ctx, env, in, &out, &talk, terminal, files...)
	}
	fmt.Fprint(ts.Stdout(), out.String())
	fmt.Fprint(ts.Stderr(), talk.String())
	if got != want {
		ts.Fatalf("forebay %s ended with %d, not %d\n%s%s", strings.Join(args[1:], " "), got, want,
			out.String(), talk.String())
	}
	if to != "" {
		ts.Setenv(to, strings.Fields(out.String())[0])
	}
	if words := strings.Fields(out.String()); last != "" {
		ts.Setenv(last, words[len(words)-1])
	}
}

// untilCommand is until COMMAND...: it repeats a forebay command, at most for 20 s, until that ends
// with its code and stdout matches the pattern after "=>".
func untilCommand(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[len(args)-1])
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
	config := ""
	if len(args) > 0 {
		config = ts.ReadFile(args[0])
	}
	public, admin, file := startServer(s.t, s.backend, config)
	ts.Setenv("CONFIG", file)
	ts.Setenv("FOREBAY_URL", public)
	ts.Setenv("FOREBAY_ADMIN_URL", admin)
}

// startServer starts an api with an embedded worker until the test ends, and waits until it is
// ready. In the config, REDIS is a Redis of its own and BACKEND the backend; "": what forebay dev
// starts. file is the config's.
func startServer(t testing.TB, b *fragile, config string) (public, admin, file string) {
	t.Helper()
	public, admin = freeAddress(t), freeAddress(t)
	flags := []string{"-listen", public, "-admin-listen", admin, "-log", "error"}
	if config != "" {
		backend := httptest.NewServer(b)
		t.Cleanup(backend.Close)
		config = strings.NewReplacer("REDIS", redistest.Start(t).URL(), "BACKEND",
			backend.URL).Replace(config)
		file = filepath.Join(t.TempDir(), "forebay.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "-config", file)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended, log := make(chan int, 1), &log{}
	go func() {
		ended <- front.Run(ctx, wire.Process{Args: flags, Stdout: io.Discard, Stderr: log,
			Env: func(string) (string, bool) { return "", false }})
	}()
	t.Cleanup(func() { stop(); <-ended })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a, err := http.Get("http://" + public + "/readyz"); err == nil {
			a.Body.Close()
			if a.StatusCode == http.StatusOK {
				return "http://" + public, "http://" + admin, file
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the api isn't ready:\n%s", log)
		}
	}
}

// fragile is a backend that answers 200 at first, then as a test wants it to.
type fragile struct {
	mu     sync.Mutex
	status int    // guarded by mu; 0: 200
	rest   string // guarded by mu: Retry-After; "": none
	path   string // guarded by mu: of status; "": all
}

func (f *fragile) answer(status int, rest, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.rest, f.path = status, rest, path
}

func (f *fragile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	status, rest, path := f.status, f.rest, f.path
	f.mu.Unlock()
	if status == 0 || path != "" && r.URL.Path != path {
		status, rest = http.StatusOK, ""
	}
	if rest != "" {
		w.Header().Set("Retry-After", rest)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d}`, status)
}

// backendCommand is backend STATUS [SECONDS]: the backend answers so from now on, and asks for so
// much rest.
func backendCommand(ts *testscript.TestScript, _ bool, args []string) {
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Value(storyKey{}).(*story).backend.answer(status, strings.Join(args[1:], ""), "")
}

// rivalCommand puts another operator, jo, in front of the admin API: one who turns the backend's
// burst just before each change of it.
func rivalCommand(ts *testscript.TestScript, _ bool, _ []string) {
	s := ts.Value(storyKey{}).(*story)
	target, err := url.Parse(ts.Getenv("FOREBAY_ADMIN_URL"))
	ts.Check(err)
	proxy, burst := httputil.NewSingleHostReverseProxy(target), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			burst++
			change, _ := http.NewRequest(http.MethodPatch, target.String()+r.URL.Path,
				strings.NewReader(fmt.Sprintf(`{"burst":%d}`, burst)))
			change.Header.Set("Content-Type", "application/json")
			change.Header.Set(api.HeaderOperator, "jo")
			if a, err := http.DefaultClient.Do(change); err != nil || a.StatusCode != 200 {
				s.t.Errorf("jo's change: %v, %v", a, err)
			}
		}
		r.Host = target.Host
		proxy.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	ts.Setenv("FOREBAY_ADMIN_URL", server.URL)
}

// stubCommand is stub FILE: a server that answers as the file says, in lines of
// "METHOD /path?query STATUS TYPE FILE". It stands for servers that are older, newer or none of
// Forebay's.
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

// commandOf finds the command that a line is, and wants its flags and arguments to be such as that
// command takes.
func commandOf(t *testing.T, line string) {
	t.Helper()
	a := &app{process: process{env: func(string) (string, bool) { return "", false }}}
	c, rest, err := a.root().Find(strings.Fields(line)[1:])
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err != nil || c.HasSubCommands() {
		t.Errorf("%s isn't a command: %v", line, err)
	}
}

// What health advises are commands that there are. Package adminapi keeps the list up to date.
func TestAdviceIsACommand(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("../../internal/adminapi/testdata/next.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		commandOf(t, line)
	}
}

// Every way to write an answer has the same figures; as YAML, no text becomes another type.
func TestAnAnswerIsTheSameInEveryForm(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{"b":[{"name":"yes","n":12345678901234567890,"x":{"on":null}},` +
		`{"name":"a: b\n#","list":[]}],"next_cursor":null}`)
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
  "next_cursor": null
}
`,
		"yaml": `b:
    - name: "yes"
      "n": 12345678901234567890
      x:
        "on": null
    - name: "a: b\n#"
      list: []
next_cursor: null
`,
	} {
		var out bytes.Buffer
		if err := writeTree(&out, raw, form); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s", form, err, out.String())
		}
	}
	table, err := flat(raw, nil)
	var out bytes.Buffer
	table.write(&out, false)
	if want := "12345678901234567890\tyes\ton=\t\n\ta: b\ufffd#\t\t\n"; err != nil ||
		out.String() != want {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A list has the columns of its type in their order, whatever its objects leave out.
func TestColumnsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	raw := json.RawMessage(`{"events":[{"type":"process_started","id":"1-0","by":"api","time":"T"},` +
		`{"id":"2-0","time":"T","type":"backend_tuned","after":{"burst":"2","rate":"8/s"}}],` +
		`"next_cursor":null}`)
	table, err := flat(raw, columnsOf(reflect.TypeFor[api.OperationEvents]()))
	var out bytes.Buffer
	table.write(&out, false)
	if want := "1-0\tT\tprocess_started\t\tapi\t\t\t\t\n" +
		"2-0\tT\tbackend_tuned\t\t\t\t\t\tburst=2,rate=8/s\n"; err != nil || out.String() != want {
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
