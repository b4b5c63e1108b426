package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds the wait for a server's first answer: usually milliseconds, more on a machine
// that is short of CPU.
const startTimeout = 30 * time.Second

// process is one redis-server that this binary started.
type process struct {
	addr string // host:port, or the path of a unix socket
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended and been reaped
}

// start starts a redis-server in dir and waits until it answers at addr.
func start(dir, addr string, args ...string) (*process, error) {
	path, err := lookup()
	if err != nil {
		return nil, err
	}
	var out syncBuffer
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	p := &process{addr: addr, cmd: cmd, gone: make(chan struct{})}
	go func() {
		cmd.Wait() // its status is known: servers here are killed
		close(p.gone)
	}()
	if err := ready(addr, cmd.Process.Pid, p.gone); err != nil {
		p.kill()
		if strings.Contains(out.String(), "Address already in use") {
			err = errTaken
		}
		return nil, fmt.Errorf("redis-server %q: %w; its output:\n%s", args, err, out.String())
	}
	return p, nil
}

// errNotInstalled explains how to get redis-server.
var errNotInstalled = errors.New(`redis-server is not installed; these tests need a real one (6.2 or later):
	apt-get install redis-server    (Debian, Ubuntu)
	dnf install redis               (Fedora)
	brew install redis              (macOS)`)

func lookup() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errNotInstalled
	}
	return path, nil
}

// errTaken reports that another process has the port.
var errTaken = errors.New("address already in use")

// ready waits until the server at addr answers, and checks that it is the process pid: another
// server may have taken the port first.
func ready(addr string, pid int, gone <-chan struct{}) error {
	rdb := redis.NewClient(options(addr))
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		info, err := rdb.InfoMap(ctx).Result()
		if err == nil {
			if got := info["Server"]["process_id"]; got != strconv.Itoa(pid) {
				return fmt.Errorf("%w: %s belongs to process %s", errTaken, addr, got)
			}
			if info["Persistence"]["loading"] != "1" { // a sentinel has no such section
				return nil
			}
		}
		if redis.HasErrorPrefix(err, "NOAUTH") {
			return nil // it answers, and this client can't learn more
		}
		select {
		case <-gone:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v: %w", startTimeout, err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// kill ends the process with SIGKILL, even if it is stopped, and waits until it is gone.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.gone
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// syncBuffer keeps the first 64 KiB of a server's output: enough to show why it didn't start.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := 64<<10 - b.buf.Len(); room > 0 {
		b.buf.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Freeze stops a process (SIGSTOP), and returns when all its threads stand still: until then it may
// still answer. Where the system has no /proc, it returns at once.
func Freeze(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(threads, moves) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d doesn't stop", pid)
		}
	}
}

// moves reports whether a thread isn't stopped, by its stat (see proc(5)): the state stands behind
// the name, which is in parentheses. A thread that is gone doesn't move.
func moves(stat string) bool {
	text, err := os.ReadFile(stat)
	i := bytes.LastIndexByte(text, ')')
	return err == nil && i >= 0 && i+2 < len(text) && text[i+2] != 'T'
}
