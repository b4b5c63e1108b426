package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay/forebay/internal/redistest"
)

// startTimeout bounds the wait for a process to listen: usually a second, more on a machine that is
// short of CPU.
const startTimeout = 20 * time.Second

// process holds the runs of a binary under one name, one after another.
type process struct {
	name string
	log  processLog
	out  processLog

	cmd    *exec.Cmd
	gone   chan struct{} // closed when the run has ended and been reaped
	asked  time.Time     // when it was asked to stop
	ended  time.Time     // set before gone is closed
	killed bool          // by crash or at the end: its status doesn't count
}

// start [-stay] [-files N] NAME [ARGUMENTS...]
//
// runs api (for names that begin with it) or worker on free ports, and waits until it listens. If
// the script has a forebay.yaml, that is its config. $NAME is then the public listener's URL, and
// $NAME_admin the admin listener's. With -stay, an api has the same public URL each time. With
// -files, the process may have N files open (ulimit -n).
func startCommand(s *story, args []string) error {
	stay := len(args) > 0 && args[0] == "-stay"
	if stay {
		args = args[1:]
	}
	var limited []string
	if len(args) > 1 && args[0] == "-files" {
		limited = []string{"/bin/sh", "-c", `ulimit -n "$0" && exec "$@"`, args[1]}
		args = args[2:]
	}
	if len(args) == 0 {
		return errors.New("usage: start [-stay] [-files N] NAME [ARGUMENTS...]")
	}
	name, args := args[0], args[1:]
	binary := "worker"
	if strings.HasPrefix(name, "api") {
		binary = "api"
		listen := "127.0.0.1:0"
		if stay {
			var err error
			if listen, err = s.stay(name); err != nil {
				return err
			}
		}
		args = append([]string{"-listen", listen}, args...)
	}
	args = append([]string{"-admin-listen", "127.0.0.1:0"}, args...)
	if config := s.ts.MkAbs("forebay.yaml"); exists(config) {
		args = append([]string{"-config", config}, args...)
	}
	p := s.processes[name]
	if p == nil {
		p = &process{name: name}
		s.processes[name] = p
	}
	env := s.environment(args)
	args = slices.Concat(limited, []string{filepath.Join(binaries, binary)}, args)
	if err := p.start(args[0], args[1:], env, s.ts.MkAbs(".")); err != nil {
		return err
	}
	listeners := []string{"admin"}
	if binary == "api" {
		listeners = append(listeners, "public")
	}
	for _, listener := range listeners {
		url, err := p.awaitListener(listener)
		if err != nil {
			return err
		}
		if listener == "public" {
			s.ts.Setenv(name, url)
			s.mu.Lock()
			s.public[name] = url
			s.mu.Unlock()
		} else {
			s.ts.Setenv(name+"_admin", url)
		}
	}
	return nil
}

// stay returns the address at which an api listens each time it is started.
func (s *story) stay(name string) (string, error) {
	if addr := s.stays[name]; addr != "" {
		return addr, nil
	}
	listener, err := listenLow()
	if err != nil {
		return "", err
	}
	s.stays[name] = listener.Addr().String()
	return s.stays[name], listener.Close()
}

// environment returns that of a process: the variables of all processes, and those of the script
// that the configs among its arguments name.
func (s *story) environment(args []string) []string {
	env := s.env
	for i, arg := range args {
		if arg != "-config" || i+1 == len(args) || !exists(s.ts.MkAbs(args[i+1])) {
			continue
		}
		for _, named := range variable.FindAllStringSubmatch(s.ts.ReadFile(args[i+1]), -1) {
			if value := s.ts.Getenv(named[1]); value != "" {
				env = append(env, named[1]+"="+value)
			}
		}
	}
	return env
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (p *process) start(path string, args, env []string, dir string) error {
	if p.running() {
		return fmt.Errorf("%s runs already", p.name)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = &p.out, &p.log
	cmd.SysProcAttr = dieWithParent()
	p.log.mark()
	p.out.mark()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.gone, p.asked, p.killed = cmd, make(chan struct{}), time.Time{}, false
	go func() {
		cmd.Wait() // exited checks the status
		p.ended = time.Now()
		close(p.gone)
	}()
	return nil
}

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// awaitListener waits until the process has logged where it listens.
func (p *process) awaitListener(name string) (url string, err error) {
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(pollEvery) {
		for line := range bytes.Lines(p.log.sinceMark()) {
			var said struct{ Msg, Listener, Addr string }
			if json.Unmarshal(line, &said) == nil && said.Msg == "listening" &&
				said.Listener == name {
				return "http://" + said.Addr, nil
			}
		}
		if !p.running() {
			return "", fmt.Errorf("%s ended before it listened: %v", p.name, p.cmd.ProcessState)
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("%s doesn't listen (%s) within %v", p.name, name, startTimeout)
		}
	}
}

// kill ends the process with SIGKILL, even if it is frozen, and waits until it is gone.
func (p *process) kill() {
	if p.running() {
		p.killed = true
		p.cmd.Process.Kill()
		<-p.gone
	}
}

// inspect fails the test for output that no process may have, and shows the end of each log if the
// test has failed.
func (p *process) inspect(t testing.TB) {
	for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:"} {
		if bytes.Contains(p.log.all(), []byte(bad)) {
			t.Errorf("%s said %q", p.name, bad)
		}
	}
	if t.Failed() {
		t.Logf("%s said:\n%s%s", p.name, tail(p.out.all()), tail(p.log.all()))
	}
}

// tail returns the last 64 KiB.
func tail(b []byte) []byte { return b[max(0, len(b)-64<<10):] }

// running returns the process that an argument names.
func (s *story) running(args []string, usage string) (*process, error) {
	if len(args) != 1 {
		return nil, errors.New("usage: " + usage)
	}
	p := s.processes[args[0]]
	if p == nil || !p.running() {
		return nil, fmt.Errorf("%s doesn't run", args[0])
	}
	return p, nil
}

// crash NAME
//
// is kill -9.
func crashCommand(s *story, args []string) error {
	p, err := s.running(args, "crash NAME")
	if err == nil {
		p.kill()
	}
	return err
}

// term NAME
//
// asks the process to stop (SIGTERM).
func termCommand(s *story, args []string) error {
	p, err := s.running(args, "term NAME")
	if err != nil {
		return err
	}
	p.asked = time.Now()
	return p.cmd.Process.Signal(syscall.SIGTERM)
}

// exited NAME CODE [DURATION]
//
// waits for the end of a process that was asked to stop, which must come within that time of the
// signal (10 s).
func exitedCommand(s *story, args []string) error {
	if len(args) < 2 || len(args) > 3 || s.processes[args[0]] == nil {
		return errors.New("usage: exited NAME CODE [DURATION]")
	}
	p, limit := s.processes[args[0]], 10*time.Second
	if len(args) == 3 {
		var err error
		if limit, err = time.ParseDuration(args[2]); err != nil {
			return err
		}
	}
	select {
	case <-p.gone:
	case <-time.After(time.Until(p.asked.Add(limit))):
		return fmt.Errorf("it still runs %v after it was told to stop", limit)
	}
	if got := strconv.Itoa(p.cmd.ProcessState.ExitCode()); got != args[1] {
		return fmt.Errorf("it ended with %v, want code %s", p.cmd.ProcessState, args[1])
	}
	if took := p.ended.Sub(p.asked); took > limit {
		return fmt.Errorf("it ended %v after it was told to, want within %v", took, limit)
	}
	return nil
}

// signal NAME HUP|USR1|USR2
//
// sends a signal that doesn't end the process.
func signalCommand(s *story, args []string) error {
	const usage = "signal NAME HUP|USR1|USR2"
	if len(args) != 2 {
		return errors.New("usage: " + usage)
	}
	p, err := s.running(args[:1], usage)
	if err != nil {
		return err
	}
	number := unix.SignalNum("SIG" + args[1])
	if number == 0 {
		return errors.New("usage: " + usage)
	}
	return p.cmd.Process.Signal(number)
}

// freeze NAME and thaw NAME
//
// stop a process without its notice, and resume it (SIGSTOP, SIGCONT).
func freezeCommand(s *story, args []string) error {
	p, err := s.running(args, "freeze NAME")
	if err != nil {
		return err
	}
	return redistest.Freeze(p.cmd.Process.Pid)
}

func thawCommand(s *story, args []string) error {
	p, err := s.running(args, "thaw NAME")
	if err != nil {
		return err
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// said NAME REGEXP
//
// expects a match in the output of the process since its start, standard output or error.
func saidCommand(s *story, args []string) error {
	if len(args) != 2 || s.processes[args[0]] == nil {
		return errors.New("usage: said NAME REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	if err != nil {
		return err
	}
	p := s.processes[args[0]]
	if !re.Match(p.log.sinceMark()) && !re.Match(p.out.sinceMark()) {
		return fmt.Errorf("%s hasn't said %s", p.name, re)
	}
	return nil
}

// told N|LO..HI REGEXP
//
// counts the matching lines in the standard error of all processes, since each was first started.
func toldCommand(s *story, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: told N REGEXP")
	}
	re, err := regexp.Compile(args[1])
	if err != nil {
		return err
	}
	n := 0
	for _, p := range s.processes {
		for line := range bytes.Lines(p.log.all()) {
			if re.Match(line) {
				n++
			}
		}
	}
	return inRange("lines with "+args[1], n, args[0])
}

// exits CODE PROGRAM ARGUMENTS...
//
// runs a binary to its end, which must have that code. stdout and stderr then hold its output.
func exitsCommand(s *story, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: exits CODE PROGRAM ARGUMENTS...")
	}
	cmd := exec.Command(filepath.Join(binaries, args[1]), args[2:]...)
	cmd.Dir, cmd.Env = s.ts.MkAbs("."), s.environment(args)
	cmd.Stdout, cmd.Stderr = s.ts.Stdout(), s.ts.Stderr()
	var status *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &status) {
		return err
	}
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		return fmt.Errorf("%v, want exit status %s", cmd.ProcessState, args[0])
	}
	return nil
}

// processLog keeps a process's output.
type processLog struct {
	mu   sync.Mutex
	buf  bytes.Buffer // guarded by mu
	from int          // guarded by mu: where the newest run begins
}

func (l *processLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *processLog) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from = l.buf.Len()
}

func (l *processLog) all() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.buf.Bytes())
}

func (l *processLog) sinceMark() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.buf.Bytes()[l.from:])
}
