package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

const (
	// startTime bounds the wait for a process to listen, on a machine that is short of CPU.
	startTime = 30 * time.Second
	// stopTime bounds a stop: the config's shutdown (1 s), the delay of an unavailable Redis, and a
	// machine that is short of CPU.
	stopTime = 30 * time.Second
)

// site runs one process at a time. A killed process is started again, as by a supervisor. Each site
// has its own proxy to Redis, which can be cut alone. Only its lane and the end of the test change
// it.
type site struct {
	w     *world
	name  string
	proxy *redistest.Proxy
	all   []*process // oldest first

	mu     sync.Mutex
	public string // guarded by mu: URL of an api's listener
	admin  string // guarded by mu
}

// process is one run of a binary.
type process struct {
	name string // worker-1.3: the third at that site
	cmd  *exec.Cmd
	log  processLog
	gone chan struct{} // closed when it has ended and been reaped
	over bool          // it was killed, or asked to stop
}

func (s *site) now() *process { return s.all[len(s.all)-1] }

// start starts a process and waits until it listens.
func (s *site) start() {
	s.w.t.Helper()
	binary, _, _ := strings.Cut(s.name, "-")
	p := &process{name: fmt.Sprintf("%s.%d", s.name, len(s.all)+1), gone: make(chan struct{})}
	args := []string{"-config", s.w.config, "-admin-listen", "127.0.0.1:0"}
	listeners := 1
	if binary == "api" {
		args, listeners = append(args, "-listen", "127.0.0.1:0"), 2
	}
	p.cmd = exec.Command(filepath.Join(binaries, binary), args...)
	p.cmd.Env = append(os.Environ(), s.w.env...)
	p.cmd.Env = append(p.cmd.Env, "REDIS_URL="+s.proxy.URL(), "PROCESS="+p.name)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = dieWithParent()
	if err := p.cmd.Start(); err != nil {
		s.w.t.Errorf("%s: %v", p.name, err)
		return
	}
	go func() {
		p.cmd.Wait() // ended checks the status
		close(p.gone)
	}()
	s.all = append(s.all, p)
	for deadline := time.Now().Add(startTime); ; time.Sleep(5 * time.Millisecond) {
		if urls := p.log.listeners(); len(urls) == listeners {
			s.mu.Lock()
			s.admin, s.public = urls["admin"], urls["public"]
			s.mu.Unlock()
			return
		}
		if p.ended() || time.Now().After(deadline) {
			s.w.t.Errorf("%s doesn't listen: %v", p.name, p.cmd.ProcessState)
			return
		}
	}
}

// urls returns where the newest process listens, or listened.
func (s *site) urls() (public, admin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.public, s.admin
}

func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// kill is kill -9, even of a frozen process.
func (s *site) kill() {
	p := s.now()
	s.w.strike(p.name, "kill") // for ever: the process is dead
	p.over = true
	p.cmd.Process.Kill()
	<-p.gone
}

// stop is SIGTERM; the process stops in order.
func (s *site) stop() {
	p, from := s.now(), time.Now()
	end := s.w.strike(p.name, "stop")
	defer end()
	p.over = true
	p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended, which is noticed next
	select {
	case <-p.gone:
	case <-time.After(stopTime):
		s.w.t.Errorf("%s still runs %v after SIGTERM", p.name, stopTime)
		p.cmd.Process.Kill()
		<-p.gone
	}
	// Without Redis it may have to leave something behind, which its status reports.
	if code := p.cmd.ProcessState.ExitCode(); code != 0 &&
		!s.w.struck(everyProcess, from, time.Now()) {
		s.w.t.Errorf("%s was asked to stop at %s and ended with %v",
			p.name, s.w.since(from), p.cmd.ProcessState)
	}
}

// freeze is SIGSTOP, for a time.
func (s *site) freeze(long time.Duration) {
	p := s.now()
	end := s.w.strike(p.name, "freeze")
	defer end()
	p.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(long)
	p.cmd.Process.Signal(syscall.SIGCONT)
}

// partition separates this site alone from Redis.
func (s *site) partition(how func(), long time.Duration) {
	end := s.w.strike(s.now().name, "partition")
	defer end()
	how()
	time.Sleep(long)
	s.proxy.Resume()
}

// forgiven are ERROR lines about faults that the test has caused, with their causes.
var forgiven = map[string]string{
	"redis: not healthy": "Redis was unavailable",
	"an outcome could not be stored; the job runs again": "Redis was unavailable for as long as " +
		"a settlement is repeated, or the worker had to stop meanwhile",
}

// inspect fails the test for output that no process may have, and for a process that ended by
// itself.
func (p *process) inspect(t testing.TB, stillRuns bool) {
	if p.ended() && !p.over {
		t.Errorf("%s ended by itself: %v", p.name, p.cmd.ProcessState)
	}
	if !p.ended() && !stillRuns {
		t.Errorf("%s was left running", p.name)
	}
	text := p.log.all()
	for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
		if bytes.Contains(text, []byte(bad)) {
			t.Errorf("%s said %q", p.name, bad)
		}
	}
	for line := range bytes.Lines(text) {
		var said struct{ Level, Msg string }
		if json.Unmarshal(line, &said) == nil && said.Level == "ERROR" && forgiven[said.Msg] == "" {
			t.Errorf("%s said: %s", p.name, line)
		}
	}
}

// processLog keeps the output of a process: JSON lines, and the output of the race detector and of
// a panic.
type processLog struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *processLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *processLog) all() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.buf.Bytes())
}

// listeners returns where a process has logged that it listens: name → URL.
func (l *processLog) listeners() map[string]string {
	urls := map[string]string{}
	for line := range bytes.Lines(l.all()) {
		var said struct{ Msg, Listener, Addr string }
		if json.Unmarshal(line, &said) == nil && said.Msg == "listening" {
			urls[said.Listener] = "http://" + said.Addr
		}
	}
	return urls
}
