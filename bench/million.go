package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// lineClients is the number of clients that the waiting jobs belong to.
const lineClients = 1000

// probesARound is how often a round takes each step on each line.
const probesARound = 300

// Goals of a line of a million.
const (
	slowdownGoal   = 2 // times an empty line's
	lineMemoryGoal = 600
	firstStartGoal = time.Second
	askedGoal      = 100 * time.Millisecond
)

// millionFigures are the costs of a long line.
type millionFigures struct {
	Waiting int64
	Bytes   float64 // of Redis, for each waiting job
	Steps   []stepRow
	Asked   []askedRow
	Starts  []startRow
}

// askedRow is what one reading for operators costs on the full line.
type askedRow struct {
	Name    string
	Redis   float64       // mean time of the script in Redis, µs
	Longest time.Duration // of all such calls
}

// stepRow is one step on an empty and on a full line, in µs.
type stepRow struct {
	Name                    string
	EmptyCaller, EmptyRedis spread // the call's duration, and the script's in Redis
	FullCaller, FullRedis   spread
	Caller, Redis           spread // full ÷ empty, of each round
}

// startRow is the start and the stop of one worker process.
type startRow struct {
	Waiting     int64
	First, Stop time.Duration // from its start to its first call; from SIGTERM to its end
}

// million measures the costs that may depend on the length of a line. It takes each step on a line
// of a million jobs and on an empty one, on two Redis servers in turn. It also measures the memory
// of a waiting job, and the start and stop of a worker.
func million(ctx context.Context, e *env, r *report) error {
	defer e.stopAll()
	if err := e.flush(ctx); err != nil {
		return err
	}
	f := &r.Million
	f.Waiting = e.plan.Million

	e.say("million: a worker at a line of one")
	row, err := e.startAndStop(ctx, 1)
	if err != nil {
		return err
	}
	f.Starts = append(f.Starts, row)
	e.stopAll()

	if err := e.flush(ctx); err != nil {
		return err
	}
	before, err := e.used(ctx)
	if err != nil {
		return err
	}
	e.say("million: filling a line with %d jobs", e.plan.Million)
	if err := fillLine(ctx, e.connect(4), e.plan.Million); err != nil {
		return err
	}
	after, err := e.used(ctx)
	if err != nil {
		return err
	}
	f.Bytes = float64(after-before) / float64(e.plan.Million)

	e.say("million: the steps of a job")
	other, err := e.otherRedis(ctx)
	if err != nil {
		return err
	}
	defer other.Close()
	empty, long := &probe{benchLine(other), other}, &probe{benchLine(e.rdb), e.rdb}
	if f.Steps, err = compareSteps(ctx, e.plan.Rounds, empty, long); err != nil {
		return err
	}

	e.say("million: what operators ask")
	if f.Asked, err = long.asked(ctx, probesARound); err != nil {
		return err
	}

	e.say("million: a worker at that line")
	if row, err = e.startAndStop(ctx, 0); err != nil {
		return err
	}
	row.Waiting = e.plan.Million
	f.Starts = append(f.Starts, row)
	e.stopAll()
	return e.flush(ctx)
}

// otherRedis starts a second, empty Redis, which stopAll stops.
func (e *env) otherRedis(ctx context.Context) (*redis.Client, error) {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	p, err := e.start("redis-2", server, "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", e.dir)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, DisableIdentity: true})
	return rdb, e.await(ctx, p, func() error { return rdb.Ping(ctx).Err() })
}

// benchLine returns the line of startForebay's config, with a concurrency of 1: a release grants
// one job.
func benchLine(rdb redis.UniversalClient) *leaky.Line {
	const year = 365 * 24 * time.Hour
	return leaky.New(rdb, leaky.Settings{
		Backend:    "bench",
		Drain:      leaky.Drain{Rate: leaky.Unlimited, Burst: 1, Concurrency: 1},
		Room:       leaky.Room{Capacity: 10_000_000, MaxWait: year, ClientShare: 1},
		Attempts:   4,
		Feedback:   true,
		KeepFailed: 24 * time.Hour,
	})
}

// lineOffer returns a new job of one of the clients.
func lineOffer() leaky.Offer {
	job := jobs.Job{ID: jobs.NewID("bench"), Operation: "job",
		Client: fmt.Sprint("open-", rand.IntN(lineClients)), Tier: "open",
		Priority: jobs.Normal, Payload: payload}
	return leaky.Offer{Job: job, Weight: 1, MaxAge: 24 * time.Hour, Keep: 24 * time.Hour}
}

// fillLine offers n jobs, from many goroutines, so that their offers are batched.
func fillLine(ctx context.Context, rdb *redis.Client, n int64) error {
	defer rdb.Close()
	line := benchLine(rdb)
	const callers = 128
	errs := make(chan error, callers)
	for i := range int64(callers) {
		go func() {
			for range n/callers + min(1, max(0, n%callers-i)) {
				p, err := line.Offer(ctx, lineOffer())
				if err == nil && p.Outcome != leaky.Accepted {
					err = fmt.Errorf("an offer was answered %s", p.Outcome)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var err error
	for range callers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// probe takes steps on one line, one at a time.
type probe struct {
	line *leaky.Line
	rdb  *redis.Client
}

// steps are the measured steps, in the order of a job's life. A round of all of them leaves the
// line as long as it was.
var steps = []string{"offer", "look (status)", "cancel", "release"}

// cost is the mean duration of one step, in µs.
type cost struct{ caller, redis float64 }

// round takes each step n times and returns the mean costs.
func (p *probe) round(ctx context.Context, n int) (map[string]cost, error) {
	sums := map[string]cost{}
	timed := func(step string, do func() error) error {
		before, err := p.worked(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		took := time.Since(began)
		after, err := p.worked(ctx)
		sums[step] = cost{sums[step].caller + float64(took.Nanoseconds())/1e3,
			sums[step].redis + after - before}
		return err
	}
	for range n {
		o := lineOffer()
		err := timed(steps[0], func() error { _, err := p.line.Offer(ctx, o); return err })
		if err != nil {
			return nil, err
		}
		err = timed(steps[1], func() error { _, err := p.line.Look(ctx, o.Job.ID); return err })
		if err != nil {
			return nil, err
		}
		err = timed(steps[2], func() error { _, err := p.line.Cancel(ctx, o.Job.ID); return err })
		if err != nil {
			return nil, err
		}
		if _, err := p.line.Offer(ctx, lineOffer()); err != nil {
			return nil, err
		}
		var granted leaky.Release
		err = timed(steps[3], func() (err error) { granted, err = p.line.Release(ctx); return err })
		if err != nil {
			return nil, err
		}
		if len(granted.Tickets) != 1 {
			return nil, fmt.Errorf("a release granted %d jobs, want one: %s",
				len(granted.Tickets), granted.Reason)
		}
		if _, err := p.line.Cancel(ctx, granted.Tickets[0].ID); err != nil {
			return nil, err
		}
	}
	for step, sum := range sums {
		sums[step] = cost{sum.caller / float64(n), sum.redis / float64(n)}
	}
	return sums, nil
}

// asked takes each reading for operators n times: that of health and forecast, that of a forecast's
// deadlines, and that of the job at the line's end.
func (p *probe) asked(ctx context.Context, n int) ([]askedRow, error) {
	o := lineOffer()
	if _, err := p.line.Offer(ctx, o); err != nil {
		return nil, err
	}
	var rows []askedRow
	for _, one := range []struct {
		name string
		ask  func() error
	}{
		{"status", func() error { _, err := p.line.Status(ctx); return err }},
		{"deadlines", func() error { _, err := p.line.Dues(ctx); return err }},
		{"explain", func() error { _, err := p.line.Explain(ctx, o.Job.ID); return err }},
	} {
		row := askedRow{Name: one.name}
		before, err := p.worked(ctx)
		if err != nil {
			return nil, err
		}
		for range n {
			began := time.Now()
			if err := one.ask(); err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
			row.Longest = max(row.Longest, time.Since(began))
		}
		after, err := p.worked(ctx)
		if err != nil {
			return nil, err
		}
		row.Redis = (after - before) / float64(n)
		rows = append(rows, row)
	}
	_, err := p.line.Cancel(ctx, o.Job.ID)
	return rows, err
}

var scriptTime = regexp.MustCompile(`(?m)^cmdstat_evalsha:calls=\d+,usec=(\d+),`)

// worked returns the time for which Redis has run scripts, in µs.
func (p *probe) worked(ctx context.Context) (float64, error) {
	info, err := p.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	found := scriptTime.FindStringSubmatch(info)
	if found == nil {
		return 0, nil // no script has run yet
	}
	return strconv.ParseFloat(found[1], 64)
}

// compareSteps measures the steps on both lines in turn. The first round is a warm-up.
func compareSteps(ctx context.Context, rounds int, empty, full *probe) ([]stepRow, error) {
	figures := map[string][][6]float64{} // by step; of each round, in the order of a stepRow
	for round := range rounds + 1 {
		short, err := empty.round(ctx, probesARound)
		if err != nil {
			return nil, fmt.Errorf("the empty line: %w", err)
		}
		long, err := full.round(ctx, probesARound)
		if err != nil {
			return nil, fmt.Errorf("the full line: %w", err)
		}
		if round == 0 {
			continue
		}
		for _, step := range steps {
			a, b := short[step], long[step]
			figures[step] = append(figures[step], [6]float64{a.caller, a.redis, b.caller, b.redis,
				b.caller / a.caller, b.redis / a.redis})
		}
	}
	var rows []stepRow
	for _, step := range steps {
		var columns [6][]float64
		for _, round := range figures[step] {
			for i, figure := range round {
				columns[i] = append(columns[i], figure)
			}
		}
		rows = append(rows, stepRow{step, spreadOf(columns[0]), spreadOf(columns[1]),
			spreadOf(columns[2]), spreadOf(columns[3]),
			spreadOf(columns[4]), spreadOf(columns[5])})
	}
	return rows, nil
}

// startAndStop submits more jobs, starts a worker process, waits for its first call and stops the
// worker.
func (e *env) startAndStop(ctx context.Context, more int64) (startRow, error) {
	b, err := e.startRecorder(ctx)
	if err != nil {
		return startRow{}, err
	}
	f, err := e.startForebay(ctx, 0, "10/s", strings.TrimPrefix(string(b), "http://"))
	if err != nil {
		return startRow{}, err
	}
	if more > 0 {
		if err := e.fill(ctx, f, more); err != nil {
			return startRow{}, err
		}
	}
	began := time.Now()
	if err := e.startWorkers(ctx, f, 1); err != nil {
		return startRow{}, err
	}
	if err := b.await(ctx, 1); err != nil {
		return startRow{}, err
	}
	stopping := time.Now()
	e.running[len(e.running)-1].stop()
	row := startRow{Waiting: more, Stop: time.Since(stopping)}
	calls, err := b.calls(ctx)
	if err != nil {
		return startRow{}, err
	}
	row.First = time.UnixMicro(calls[0].At).Sub(began)
	return row, nil
}
