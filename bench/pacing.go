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

// pacing measures how evenly the backend is called, at each rate with each number of worker processes. The jobs wait before the
// first worker starts.
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

// Widths of the windows that are looked at.
const (
	tenth  = 100 * time.Millisecond
	second = time.Second
	ten    = 10 * time.Second
)

// slow is the highest rate at which ten seconds are too few starts to say much.
const slow = 1

// drainRow is one drain as it was measured.
type drainRow struct {
	Configured float64 // per second
	Workers    int     // processes
	Span       time.Duration
	Burst      float64 // starts that come together by design; 0 and 1: none do
	pace
	Scripts  float64 // calls of Redis, for each job
	Commands float64 // and all that Redis did then, what scripts call included
}

// allowed is the most starts in any window of that width: rate × w and one more at its edge, and 1 % for jitter.
func (d drainRow) allowed(width time.Duration) int {
	return int(math.Floor(d.Configured*width.Seconds()*1.01+1e-9)) + 1
}

// deviation is how far the mean rate is off, in percent.
func (d drainRow) deviation() float64 { return 100 * (d.Rate/d.Configured - 1) }

// goal is how far it may be off.
func (d drainRow) goal() float64 {
	if d.Configured > 500 {
		return 1
	}
	return 0.2
}

func (d drainRow) met() bool {
	return math.Abs(d.deviation()) <= d.goal() && d.Tenth <= d.allowed(tenth) && d.Second <= d.allowed(second) && d.Ten <= d.allowed(ten)
}

// pacedBy measures one drain of so many processes.
func (e *env) pacedBy(ctx context.Context, rate float64, workers int, span time.Duration) (drainRow, error) {
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

// backlog is how many jobs last for a measurement, and for the time in which the first workers drain before the last one is up.
func (e *env) backlog(rate float64, span time.Duration) int64 {
	const startUp = 5 * time.Second
	return int64(rate*(e.plan.Settle+span+startUp).Seconds()) + 3
}

// fill submits so many jobs.
func (e *env) fill(ctx context.Context, f *forebay, jobs int64) error {
	target := load.Target{Addr: f.addr, Status: http.StatusAccepted, Requests: f.submissions(e.plan.Clients, openKey)}
	_, err := load.Run(ctx, target, load.Plan{Conns: 16, Count: jobs})
	return err
}

// observe fills in the row: the arrivals of calls for its span once they come steadily, and what Redis is asked for each.
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
	if err := pause(ctx, 200*time.Millisecond); err != nil { // what is on its way is noted
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
	if last := calls[len(calls)-1].At; float64(last) < float64(until)-2e6*math.Max(row.Burst, 1)/row.Configured {
		return fmt.Errorf("%d calls, and none in the last %.1f s", len(calls), float64(until-last)/1e6)
	}
	row.pace = paceOf(arrivals)
	if row.Burst > 1 {
		row.Rate = burstRate(arrivals, time.Duration(row.Burst/row.Configured*float64(time.Second)))
	}
	each := float64(max(len(arrivals), 1))
	row.Scripts, row.Commands = float64(scriptsThen-scripts)/each, float64(commandsThen-commands)/each
	return nil
}
