package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// env is the environment of the scenarios: a directory, the built programs, a Redis and the other
// processes that were started.
type env struct {
	plan     plan
	dir      string
	progress io.Writer
	redis    string // its address
	rdb      *redis.Client
	running  []*process // oldest first
}

// setUp builds the programs and starts Redis. After an error nothing is left behind, except the
// logs that the error names.
func setUp(ctx context.Context, p plan, progress io.Writer) (*env, error) {
	dir, err := os.MkdirTemp("", "forebay-bench")
	if err != nil {
		return nil, err
	}
	e := &env{plan: p, dir: dir, progress: progress}
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(err, e.tearDown(ctx.Err() == nil))
	}
	return e, nil
}

func (e *env) prepare(ctx context.Context) error {
	e.say("building")
	if err := e.build(ctx); err != nil {
		return err
	}
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("%w: install it (apt-get install redis-server, brew install redis)", err)
	}
	e.redis, err = freeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(e.redis)
	p, err := e.start("redis", server, "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", e.dir)
	if err != nil {
		return err
	}
	e.rdb = e.connect(1)
	return e.await(ctx, p, func() error { return e.rdb.Ping(ctx).Err() })
}

// build builds the product's programs, with the versions that its own module names, and the
// programs that they are compared with.
func (e *env) build(ctx context.Context) error {
	product, err := productDir(ctx)
	if err != nil {
		return err
	}
	for dir, programs := range map[string][]string{
		product: {"./cmd/api", "./cmd/worker"},
		".":     {"./baseline", "./backend", "./asynqworker"},
	} {
		into := e.program("") + string(filepath.Separator)
		build := exec.CommandContext(ctx, "go",
			append([]string{"build", "-o", into}, programs...)...)
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	return nil
}

// productDir returns the directory of the product's module.
func productDir(ctx context.Context) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Dir}}",
		"github.com/forebay/forebay/api").Output()
	if err != nil {
		return "", fmt.Errorf("find the product's module; run this in bench/: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// connect returns a client of the run's Redis, with a pool of the given size.
func (e *env) connect(connections int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     e.redis,
		PoolSize:                 connections,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// tearDown stops all processes and removes all files. With keepLogs the logs stay, and the error
// names their directory.
func (e *env) tearDown(keepLogs bool) error {
	for i := len(e.running) - 1; i >= 0; i-- {
		e.running[i].stop()
	}
	if e.rdb != nil {
		e.rdb.Close()
	}
	if keepLogs {
		return errors.Join(fmt.Errorf("logs are in %s", e.dir), os.RemoveAll(e.program("")))
	}
	return os.RemoveAll(e.dir)
}

func (e *env) say(format string, args ...any) {
	fmt.Fprintf(e.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// program returns the path of a built program. For "" it returns the directory of all of them.
func (e *env) program(name string) string { return filepath.Join(e.dir, "bin", name) }

// process is a child whose output goes to a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	gone chan struct{} // closed when the process has ended
}

func (e *env) start(name, program string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(program, args...),
		log: filepath.Join(e.dir, name+".log"), gone: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the log says more than the exit status
		close(p.gone)
	}()
	e.running = append(e.running, p)
	return p, nil
}

// stop asks a process to end, and kills it after 10 s.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error: it has ended
	select {
	case <-p.gone:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.gone
	}
}

// await repeats check until it succeeds. It gives up when the process ends, and after 15 s.
func (e *env) await(ctx context.Context, p *process, check func() error) error {
	deadline := time.After(15 * time.Second)
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-p.gone:
			return fmt.Errorf("%s ended: %s", p.name, p.tail())
		case <-deadline:
			return fmt.Errorf("%s is not ready: %w: %s", p.name, err, p.tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tail returns the last lines of a process's log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const lines = 10
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return "\n" + string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// serve starts a program that listens on HTTP, and waits until url answers.
func (e *env) serve(ctx context.Context, name, program, url string,
	args ...string) (*process, error) {
	p, err := e.start(name, e.program(program), args...)
	if err != nil {
		return nil, err
	}
	return p, e.await(ctx, p, func() error {
		res, err := http.Get(url)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode >= http.StatusInternalServerError {
			return fmt.Errorf("%s says %s", url, res.Status)
		}
		return nil
	})
}

// stopAll stops all processes except Redis.
func (e *env) stopAll() {
	for len(e.running) > 1 {
		last := len(e.running) - 1
		e.running[last].stop()
		e.running = e.running[:last]
	}
}

// flush empties Redis.
func (e *env) flush(ctx context.Context) error { return e.rdb.FlushAll(ctx).Err() }

// freeAddress returns a loopback address on which no process listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// machine describes the machine of the run.
func (e *env) machine(ctx context.Context) machine {
	m := machine{CPU: "unknown", Kernel: "unknown", Redis: "unknown"}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = field(string(text), "model name", m.CPU)
	}
	if out, err := exec.CommandContext(ctx, "uname", "-sr").Output(); err == nil {
		m.Kernel = strings.TrimSpace(string(out))
	}
	if info, err := e.rdb.Info(ctx, "server").Result(); err == nil {
		m.Redis = field(info, "redis_version", m.Redis)
	}
	return m
}

// loadAverage returns the mean number of runnable processes in the last minute. It returns 0 if the
// system doesn't report it.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}

// field returns the value of the first "name: value" line of text, or absent.
func field(text, name, absent string) string {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return absent
}
