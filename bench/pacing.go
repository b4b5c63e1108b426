package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/forebay/forebay/bench/load"
)

// pacing measures how evenly the backend is called, at each rate and with each number of worker
// processes. The jobs wait before the first worker starts.
func pacing(ctx context.Context, e *env, r *report) error {
	for _, rate := range e.plan.Rates {
		for _, workers := range e.plan.Workers {
			span := e.plan.Drain
			if rate <= slow && e.plan.Long {
				span = e.plan.SlowDrain
			}
			e.say("drain: %v/s over %d processes", rate, workers)
			row, err := e.pacedBy(ctx, rate, workers, span)
			if err != nil {
				return fmt.Errorf("%v/s over %d processes: %w", rate, workers, err)
			}
			r.Drains = append(r.Drains, row)
		}
	}
	return nil
}

// Widths of the windows in which calls are counted.
const (
	tenth  = 100 * time.Millisecond
	second = time.Second
	ten    = 10 * time.Second
)

// slow is the highest rate at which ten seconds hold too few calls to say much.
const slow = 1

// drainRow is one measured drain.
type drainRow struct {
	Configured float64 // per second
	Workers    int     // processes
	Span       time.Duration
	Burst      float64 // calls that come together by design; 0 and 1: none do
	pace
	Scripts  float64 // script calls per job
	Commands float64 // all commands that Redis executed per job, those inside scripts included
}

// allowed returns the most calls that are allowed in any window of the given width w: rate × w,
// one more at the window's edge, and 1 % for jitter.
func (d drainRow) allowed(width time.Duration) int {
	return int(math.Floor(d.Configured*width.Seconds()*1.01+1e-9)) + 1
}

// deviation returns the error of the mean rate, in percent.
func (d drainRow) deviation() float64 { return 100 * (d.Rate/d.Configured - 1) }

// goal returns the largest deviation that is allowed.
func (d drainRow) goal() float64 {
	if d.Configured > 500 {
		return 1
	}
	return 0.2
}

func (d drainRow) met() bool {
	return math.Abs(d.deviation()) <= d.goal() && d.Tenth <= d.allowed(tenth) &&
		d.Second <= d.allowed(second) && d.Ten <= d.allowed(ten)
}

// pacedBy measures one drain by the given number of worker processes.
func (e *env) pacedBy(ctx context.Context, rate float64, workers int,
	span time.Duration) (drainRow, error) {
	defer e.stopAll()
	row := drainRow{Configured: rate, Workers: workers, Span: span}
	f, b, err := e.startBack(ctx, 0, strconv.FormatFloat(rate, 'f', -1, 64)+"/s")
	if err != nil {
		return row, err
	}
	if err := e.fill(ctx, f, e.backlog(rate, span)); err != nil {
		return row, err
	}
	if err := e.startWorkers(ctx, f, workers); err != nil {
		return row, err
	}
	return row, e.observe(ctx, b, &row)
}

// backlog returns the number of jobs that last for a measurement, and for the time in which the
// first workers drain before the last one is up.
func (e *env) backlog(rate float64, span time.Duration) int64 {
	const startUp = 5 * time.Second
	return int64(rate*(e.plan.Settle+span+startUp).Seconds()) + 3
}

// fill submits the given number of jobs.
func (e *env) fill(ctx context.Context, f *forebay, jobs int64) error {
	target := load.Target{Addr: f.addr, Status: http.StatusAccepted,
		Requests: f.submissions(e.plan.Clients, openKey)}
	_, err := load.Run(ctx, target, load.Plan{Conns: 16, Count: jobs})
	return err
}

// observe fills in the row once calls come steadily: the arrivals of calls in the row's span, and
// the commands of Redis per job.
func (e *env) observe(ctx context.Context, b backend, row *drainRow) error {
	if err := b.await(ctx, 1); err != nil {
		return err
	}
	if err := pause(ctx, e.plan.Settle); err != nil {
		return err
	}
	scripts, commands, err := e.commands(ctx)
	if err != nil {
		return err
	}
	from := time.Now().UnixMicro()
	until := from + row.Span.Microseconds()
	if err := pause(ctx, row.Span); err != nil {
		return err
	}
	scriptsThen, commandsThen, err := e.commands(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, 200*time.Millisecond); err != nil { // calls under way are noted by then
		return err
	}
	calls, err := b.calls(ctx)
	if err != nil {
		return err
	}
	var arrivals []int64
	for _, c := range calls {
		if c.At >= from && c.At < until {
			arrivals = append(arrivals, c.At)
		}
	}
	gap := 2e6 * math.Max(row.Burst, 1) / row.Configured // µs without a call at the end
	if last := calls[len(calls)-1].At; float64(last) < float64(until)-gap {
		return fmt.Errorf("%d calls, and none in the last %.1f s",
			len(calls), float64(until-last)/1e6)
	}
	row.pace = paceOf(arrivals)
	if row.Burst > 1 {
		row.Rate = burstRate(arrivals, time.Duration(row.Burst/row.Configured*float64(time.Second)))
	}
	each := float64(max(len(arrivals), 1))
	row.Scripts, row.Commands = float64(scriptsThen-scripts)/each,
		float64(commandsThen-commands)/each
	return nil
}
