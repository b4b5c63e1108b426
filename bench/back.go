package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/bench/load"
)

// workers is the number of worker processes of a scenario that doesn't set its own.
const workers = 3

// idle measures a system that has nothing to do: how many commands it sends to Redis, and how soon
// a new job reaches the backend.
func idle(ctx context.Context, e *env, r *report) error {
	e.say("idle: commands of %d workers", workers)
	defer e.stopAll()
	f, b, err := e.startBack(ctx, workers, "100/s")
	if err != nil {
		return err
	}
	// Two jobs go first, so that connections and scripts are there.
	for range 2 {
		if _, err := f.submit(ctx, 0); err != nil {
			return err
		}
	}
	if err := b.await(ctx, 2); err != nil {
		return err
	}
	scripts, all, err := e.commands(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, e.plan.IdleSpan); err != nil {
		return err
	}
	scriptsThen, allThen, err := e.commands(ctx)
	if err != nil {
		return err
	}
	span := time.Since(began).Seconds()
	r.Idle.Scripts, r.Idle.Commands = float64(scriptsThen-scripts)/span, float64(allThen-all)/span

	e.say("idle: latency of %d jobs", e.plan.IdleJobs)
	if err := b.forget(ctx); err != nil {
		return err
	}
	type times struct{ sent, answered int64 }
	submitted := map[string]times{}
	for range e.plan.IdleJobs {
		// The pause is random, so that it is in step with no timer of Forebay.
		if err := pause(ctx, 30*time.Millisecond+rand.N(70*time.Millisecond)); err != nil {
			return err
		}
		sent := time.Now()
		status, err := f.submit(ctx, 0)
		if err != nil {
			return err
		}
		submitted[path.Base(status)] = times{sent.UnixMicro(), time.Now().UnixMicro()}
	}
	if err := b.await(ctx, e.plan.IdleJobs); err != nil {
		return err
	}
	calls, err := b.calls(ctx)
	if err != nil {
		return err
	}
	var sinceSent, sinceAnswer []time.Duration
	for _, c := range calls {
		t, ok := submitted[c.Job]
		if !ok {
			return fmt.Errorf("a call for the job %q, which wasn't submitted", c.Job)
		}
		sinceSent = append(sinceSent, time.Duration(c.At-t.sent)*time.Microsecond)
		sinceAnswer = append(sinceAnswer, time.Duration(c.At-t.answered)*time.Microsecond)
	}
	slices.Sort(sinceSent)
	slices.Sort(sinceAnswer)
	r.Idle.Jobs = len(calls)
	r.Idle.SentP50, r.Idle.SentP99 = quantile(sinceSent, 0.5), quantile(sinceSent, 0.99)
	r.Idle.AnswerP50, r.Idle.AnswerP99 = quantile(sinceAnswer, 0.5), quantile(sinceAnswer, 0.99)
	return nil
}

// commands returns the numbers of script calls, and of all commands, that Redis has executed.
func (e *env) commands(ctx context.Context) (scripts, all int64, err error) {
	info, err := e.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		count, _, _ := strings.Cut(rest, ",")
		calls, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		all += calls
		if name == "eval" || name == "evalsha" {
			scripts += calls
		}
	}
	return scripts, all, nil
}

// memory measures how much of Redis's memory a waiting job takes, and the same for a task of asynq.
func memory(ctx context.Context, e *env, r *report) error {
	defer e.stopAll()
	enqueue, err := e.baseline(ctx, "enqueue", http.StatusAccepted)
	if err != nil {
		return err
	}
	f, err := e.startForebay(ctx, 0, "unlimited", "127.0.0.1:9")
	if err != nil {
		return err
	}
	ours := load.Target{Addr: f.addr, Status: http.StatusAccepted,
		Requests: f.submissions(e.plan.Clients, openKey)}
	for _, c := range []struct {
		name   string
		target load.Target
	}{{"forebay, in line", ours}, {"asynq, pending", enqueue.target}} {
		e.say("memory: %s", c.name)
		if err := e.flush(ctx); err != nil {
			return err
		}
		before, err := e.used(ctx)
		if err != nil {
			return err
		}
		if _, err := load.Run(ctx, c.target,
			load.Plan{Conns: 64, Count: e.plan.Waiting}); err != nil {
			return err
		}
		after, err := e.used(ctx)
		if err != nil {
			return err
		}
		r.Memory = append(r.Memory,
			memoryRow{Name: c.name, Bytes: float64(after-before) / float64(e.plan.Waiting)})
	}
	return e.flush(ctx)
}

// used returns Redis's used_memory.
func (e *env) used(ctx context.Context) (int64, error) {
	info, err := e.rdb.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(field(info, "used_memory", ""), 10, 64)
}

// startBack starts the recording backend, an api and the given number of workers, on an empty
// Redis. The workers drain at the given rate.
func (e *env) startBack(ctx context.Context, workers int, rate string) (*forebay, backend, error) {
	if err := e.flush(ctx); err != nil {
		return nil, "", err
	}
	b, err := e.startRecorder(ctx)
	if err != nil {
		return nil, "", err
	}
	f, err := e.startForebay(ctx, workers, rate, strings.TrimPrefix(string(b), "http://"))
	return f, b, err
}

// startRecorder starts the recording backend.
func (e *env) startRecorder(ctx context.Context) (backend, error) {
	addr, err := freeAddress()
	if err != nil {
		return "", err
	}
	b := backend("http://" + addr)
	_, err = e.serve(ctx, "backend", "backend", string(b)+"/calls", "-listen", addr)
	return b, err
}

// backend is the recording backend's URL.
type backend string

type call struct {
	At  int64  `json:"at"` // Unix µs
	Job string `json:"job"`
}

// calls returns the calls that the backend noted, oldest first.
func (b backend) calls(ctx context.Context) ([]call, error) {
	text, err := b.do(ctx, "GET", "/log")
	if err != nil {
		return nil, err
	}
	var calls []call
	if err := json.Unmarshal(text, &calls); err != nil {
		return nil, fmt.Errorf("the backend's log: %w", err)
	}
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.At, b.At) })
	return calls, nil
}

func (b backend) forget(ctx context.Context) error {
	_, err := b.do(ctx, "DELETE", "/log")
	return err
}

// await waits until the backend has received n calls, for at most 15 s.
func (b backend) await(ctx context.Context, n int) error {
	deadline := time.Now().Add(15 * time.Second)
	for {
		got, err := b.count(ctx)
		if err != nil {
			return err
		}
		if got >= n {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d calls reached the backend, want %d", got, n)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// count returns the number of calls that the backend has noted.
func (b backend) count(ctx context.Context) (int, error) {
	text, err := b.do(ctx, "GET", "/calls")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the backend's count: %w", err)
	}
	return n, nil
}

// pause waits for d. It returns ctx's error if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (b backend) do(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, string(b)+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}
