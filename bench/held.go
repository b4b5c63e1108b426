package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
)

// heldFigures are the figures of clients that wait for their jobs.
type heldFigures struct {
	Clients  int
	Woken    int
	P50, P99 time.Duration // from a job's end (Redis's clock, whole ms) to the client's answer

	Idle     int     // clients that wait for jobs that don't move
	Memory   float64 // bytes of the api's resident memory that they take together
	CPU      float64 // of the api, in cores
	Commands float64 // of Redis, per second
}

// held measures long polls. Many clients wait at once: it measures how soon their polls end after
// their jobs do, and what clients cost that only wait.
func held(ctx context.Context, e *env, r *report) error {
	defer e.stopAll()
	e.say("held: %d clients wait, %d times", e.plan.Held, e.plan.Woken)
	f, _, err := e.startBack(ctx, 1, "100/s")
	if err != nil {
		return err
	}
	r.Held.Clients = e.plan.Held
	waits, err := f.wake(ctx, e.plan)
	if err != nil {
		return err
	}
	r.Held.Woken = len(waits)
	r.Held.P50, r.Held.P99 = quantile(waits, 0.5), quantile(waits, 0.99)
	e.stopAll()
	return e.idleWaiters(ctx, &r.Held)
}

// wake submits jobs and waits for each by long poll, in order, p.Held at a time. It returns,
// sorted, the time from each job's end to the answer.
func (f *forebay) wake(ctx context.Context, p plan) ([]time.Duration, error) {
	paths := make([]string, p.Held+p.Woken)
	for i := range paths {
		var err error
		if paths[i], err = f.submit(ctx, i%p.Clients); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.Held,
		MaxConnsPerHost: p.Held}}
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range paths {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var waits []time.Duration // guarded by mu
	var begun int             // guarded by mu: first waits of clients
	var crowded time.Time     // guarded by mu: the last client has begun to wait by then
	var all sync.WaitGroup
	for range p.Held {
		all.Go(func() {
			first := true
			for i := range next {
				if first {
					first = false
					mu.Lock()
					if begun++; begun == p.Held {
						crowded = time.Now().Add(time.Second)
					}
					mu.Unlock()
				}
				late, waited, err := f.wait(ctx, client, paths[i], i%p.Clients)
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				// The last waits don't count either: few clients are left then.
				if waited && i < p.Woken && !crowded.IsZero() && time.Now().After(crowded) {
					waits = append(waits, late)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(waits)
	return waits, context.Cause(ctx)
}

// wait polls until the job is done. It returns the time from the job's end to the answer. waited is
// false if the job had ended before that poll was sent.
func (f *forebay) wait(ctx context.Context, client *http.Client, path string,
	i int) (late time.Duration, waited bool, err error) {
	for {
		sent := time.Now()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+f.addr+path, nil)
		if err != nil {
			return 0, false, err
		}
		req.Header.Set("Authorization", "Bearer "+fmt.Sprintf(openKey, i))
		req.Header.Set(api.HeaderPrefer, "wait=30")
		res, err := client.Do(req)
		if err != nil {
			return 0, false, err
		}
		body, err := io.ReadAll(res.Body)
		now := time.Now()
		res.Body.Close()
		if err != nil {
			return 0, false, err
		}
		var job api.Job
		if err := json.Unmarshal(body, &job); err != nil || res.StatusCode != http.StatusOK {
			return 0, false, fmt.Errorf("status: %s: %s", res.Status, body)
		}
		if job.Done {
			return now.Sub(job.FinishedAt.Time), sent.Before(job.FinishedAt.Time), nil
		}
	}
}

// idleClients is the number of clients that wait for jobs that don't move. The goal for as many:
// under 100 MB and under 5 % of a core.
const idleClients = 2000

// idleWaiters measures what clients cost that only wait.
func (e *env) idleWaiters(ctx context.Context, h *heldFigures) error {
	h.Idle = idleClients
	if e.plan.Held < full.Held {
		h.Idle = e.plan.Held
	}
	e.say("held: %d clients only wait", h.Idle)
	f, err := e.startForebay(ctx, 0, "1/s", "127.0.0.1:9")
	if err != nil {
		return err
	}
	path, err := f.submit(ctx, 0)
	if err != nil {
		return err
	}
	process := e.running[len(e.running)-1].cmd.Process.Pid
	before, err := e.costs(ctx, process)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: h.Idle}}
	opened := make(chan error, h.Idle)
	for range h.Idle {
		go func() { opened <- f.listen(ctx, client, path) }()
	}
	for range h.Idle {
		if err := <-opened; err != nil {
			return err
		}
	}
	began, err := e.costs(ctx, process)
	if err != nil {
		return err
	}
	if err := pause(ctx, e.plan.IdleSpan); err != nil {
		return err
	}
	ended, err := e.costs(ctx, process)
	if err != nil {
		return err
	}
	span := ended.at.Sub(began.at).Seconds()
	h.Memory = ended.memory - before.memory
	h.CPU = (ended.cpu - began.cpu) / span
	h.Commands = float64(ended.commands-began.commands) / span
	return nil
}

// listen opens a stream of a job's states and returns when the first event has come. The stream
// goes on until ctx ends.
func (f *forebay) listen(ctx context.Context, client *http.Client, path string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+f.addr+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+fmt.Sprintf(openKey, 0))
	req.Header.Set("Accept", "text/event-stream")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { res.Body.Close() })
	var seen []byte
	buf := make([]byte, 1024)
	for !bytes.Contains(seen, []byte("event: status")) {
		n, err := res.Body.Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			return fmt.Errorf("stream: %s: %w: %s", res.Status, err, seen)
		}
	}
	go io.Copy(io.Discard, res.Body)
	return nil
}

// costs are what a process has used and what Redis has executed, up to a moment.
type costs struct {
	at       time.Time
	memory   float64 // bytes, resident
	cpu      float64 // seconds
	commands int64
}

func (e *env) costs(ctx context.Context, pid int) (c costs, err error) {
	if _, c.commands, err = e.commands(ctx); err != nil {
		return c, err
	}
	c.at = time.Now()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return c, err
	}
	// The fields of proc(5) from the third on.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 22 {
		return c, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	number := func(field int) float64 {
		n, wrong := strconv.ParseFloat(fields[field-3], 64)
		if wrong != nil {
			err = wrong
		}
		return n
	}
	const ticks = 100 // of user and system time per second, on every Linux
	c.cpu = (number(14) + number(15)) / ticks
	c.memory = number(24) * float64(os.Getpagesize())
	return c, err
}

func (r *report) writeHeld(p func(string, ...any)) {
	h := r.Held
	if h.Woken == 0 {
		return
	}
	p("\n## Clients that wait\n")
	p("%d clients long-poll their jobs (`Prefer: wait=30`), which end at 100/s. Over %d ends, the",
		h.Clients, h.Woken)
	p("time from the job's end to the client's answer is %s in the median and %s at the 99th",
		ms(h.P50), ms(h.P99))
	p("percentile. Goal: under 20 ms at the 99th; met: %s.\n", yes(h.P99 < 20*time.Millisecond))
	p("%d clients hold streams of jobs that don't move. The streams take %.1f MB of the api's",
		h.Idle, h.Memory/1e6)
	p("resident memory (goal: under 100; met: %s) and %.1f %% of a core (goal: under 5; met: %s).",
		yes(h.Memory < 100e6), 100*h.CPU, yes(h.CPU < 0.05))
	p("Redis executes %.0f commands a second meanwhile, for all calls of the api.", h.Commands)
}
