// Package e2e tells stories with the real binaries, a real Redis and a real fragile backend:
// testdata/*.txtar, one story per file. README.md lists the commands of the stories.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forebay/forebay/internal/redistest"
)

// binaries is the directory of api, worker and ask, built by TestMain.
var binaries string

// together is how many stories run at once. They mostly wait, so it is more than the number of
// processors, which testing would choose. They also pace starts, so it is no more than two
// processors can run.
const together = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	redis.SetLogger(silent{}) // it writes each failed dial to stderr; stories kill Redis on purpose
	os.Exit(run(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func run(m *testing.M) int {
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", together); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "forebay-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	build := exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator),
		"github.com/forebay/forebay/cmd/api", "github.com/forebay/forebay/cmd/worker",
		"github.com/forebay/forebay/e2e/ask")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: building the binaries: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func TestStories(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		Setup:               begin,
		Cmds:                commands(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// story is the state of one script. Its commands run one after another. Only the state that many
// and the backends use concurrently is guarded by a mutex.
type story struct {
	t  testing.TB
	ts *testscript.TestScript // of the running command

	env       []string // of every process, without the variables of its config
	processes map[string]*process
	redis     *redistest.Server
	rdb       redis.UniversalClient
	backends  map[string]*backend
	http      *http.Client
	lists     map[string][]string // saved by many and meanwhile, read by each
	meanwhile *meanwhile          // nil: none is running
	stays     map[string]string   // the address of each api that keeps it

	mu        sync.Mutex
	accepted  map[string]time.Time    // guarded by mu: by job id, when its 202 was read
	public    map[string]string       // guarded by mu: by api, the URL of its newest run
	elsewhere map[string]*http.Client // guarded by mu: by the address that its requests come from
}

type storyKey struct{}

// begin creates the story of a script. All that the story starts ends with the script's test.
func begin(env *testscript.Env) error {
	t, ok := env.T().(testing.TB)
	if !ok {
		return fmt.Errorf("testscript gives a %T, which is no testing.TB", env.T())
	}
	env.Setenv("PATH", binaries+string(os.PathListSeparator)+env.Getenv("PATH"))
	deploy, err := filepath.Abs(deployed)
	if err != nil {
		return err
	}
	env.Setenv("DEPLOY", deploy)
	env.Setenv("MONTH_ENDS", monthEnds(time.Now().UTC()))
	// The race detector would keep every process for a second at its exit.
	env.Setenv("GORACE", "atexit_sleep_ms=20 exitcode=66")
	s := &story{
		t:         t,
		env:       env.Vars,
		processes: map[string]*process{},
		backends:  map[string]*backend{},
		http:      newHTTPClient(nil),
		elsewhere: map[string]*http.Client{},
		lists:     map[string][]string{},
		stays:     map[string]string{},
		accepted:  map[string]time.Time{},
		public:    map[string]string{},
	}
	env.Defer(s.end) // before the Cleanups, such as Redis's
	env.Values[storyKey{}] = s
	return nil
}

// monthEnds returns a pattern of the Unix times at which this month ends and the next one, in case
// the month ends during the story. Each may be a second later, since the service rounds up.
func monthEnds(now time.Time) string {
	end := func(months int) int64 {
		return time.Date(now.Year(), now.Month()+time.Month(months), 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return fmt.Sprintf("(%d|%d|%d|%d)", end(1), end(1)+1, end(2), end(2)+1)
}

// end kills the running processes, by pid, and inspects their output.
func (s *story) end() {
	if s.meanwhile != nil {
		s.meanwhile.cancel()
	}
	for _, p := range s.processes {
		p.kill()
	}
	for _, b := range s.backends {
		b.down()
	}
	s.http.CloseIdleConnections()
	for _, c := range s.elsewhere {
		c.CloseIdleConnections()
	}
	for _, p := range s.processes {
		p.inspect(s.t)
	}
}

// command is one command of the stories. An error ends the script, or makes until try again.
type command func(s *story, args []string) error

// words are all commands that may follow until, always and each.
var words = map[string]command{
	"redis":       redisCommand,
	"books":       booksCommand,
	"start":       startCommand,
	"crash":       crashCommand,
	"term":        termCommand,
	"signal":      signalCommand,
	"exited":      exitedCommand,
	"freeze":      freezeCommand,
	"thaw":        thawCommand,
	"said":        saidCommand,
	"told":        toldCommand,
	"exits":       exitsCommand,
	"backend":     backendCommand,
	"calls":       callsCommand,
	"http":        httpCommand,
	"many":        manyCommand,
	"idle":        idleCommand,
	"meanwhile":   meanwhileCommand,
	"cancel-race": cancelRaceCommand,
	"curls":       curlsCommand,
	"obey":        obeyCommand,
	"retune":      retuneCommand,
	"nginx":       nginxCommand,
	"edit":        editCommand,
	"holds":       holdsCommand,
}

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){}
	add := func(name string, c command) {
		all[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			s := ts.Value(storyKey{}).(*story)
			s.ts = ts
			err := c(s, args)
			switch {
			case neg && err == nil:
				ts.Fatalf("%s: it holds, and must not", name)
			case !neg && err != nil:
				ts.Fatalf("%s: %v", name, err)
			}
		}
	}
	for name, c := range words {
		add(name, c)
	}
	add("until", untilCommand)
	add("always", alwaysCommand)
	add("each", eachCommand)
	return all
}
