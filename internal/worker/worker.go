package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

const (
	// After the grace period, aborted calls have giveBackTime to give their jobs back. A job that
	// isn't back by then returns when its lease expires. endTime bounds all of the time after the
	// grace period: asynq's calls to a Redis that hangs take some seconds.
	giveBackTime = 3 * time.Second
	endTime      = 10 * time.Second
	// longestAge caps the time to a job's max_age: a call's timeout is far shorter.
	longestAge = 24 * time.Hour
)

// Worker drains the lines of its backends. Any number of workers, in any number of processes, may
// drain one line without exceeding its rate.
type Worker struct {
	drains   []*drain
	listener Listener
	grace    time.Duration
	log      *slog.Logger
}

// drain is a worker's part for one backend.
type drain struct {
	name       string
	owner      string // a nonce that identifies this drain to the line
	line       Line
	queue      Queue
	wake       <-chan struct{}
	caller     *caller
	operations map[string]operation
	policy     policy
	timeout    time.Duration
	stale      Stale
	changed    func(string, leaky.Change, leaky.Sign, leaky.Feedback) // may be nil
	lapsed     func(backend, setting, was, config string)             // may be nil
	metrics    *metrics
	log        *slog.Logger

	// Per backend: on a cluster their keys are on nodes with different clocks.
	clock      leaky.Clock
	runs       *runs
	bottleneck bottleneck // used by the dispatcher only

	queuePaused bool // as last reported; used by the dispatcher only
}

// New returns a Worker that does nothing before Run. It returns an error if c is invalid.
func New(c Config) (*Worker, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(c.Metrics, c.Backends)
	if err != nil {
		return nil, err
	}
	w := &Worker{listener: c.Listener, grace: c.Grace, log: c.Log}
	for _, b := range c.Backends {
		settings := b.Line.Settings()
		d := &drain{
			name:       settings.Backend,
			owner:      rand.Text(),
			line:       b.Line,
			queue:      b.Queue,
			wake:       c.Listener.Wake(settings.Backend),
			caller:     newCaller(b.Headers),
			operations: map[string]operation{},
			policy: policy{retryOn: b.Retry.On, rest: b.Retry.Rest, base: b.Retry.Base,
				cap: b.Retry.Cap, attempts: settings.Attempts},
			timeout: b.Timeout,
			stale:   c.Stale,
			changed: c.Changed,
			lapsed:  c.Lapsed,
			metrics: m,
			log:     c.Log.With("backend", settings.Backend),
			runs:    newRuns(),
		}
		for name, o := range b.Operations {
			u, err := target(b.URL, o.Path)
			if err != nil {
				return nil, fmt.Errorf("worker: operation %s: %w", name, err)
			}
			d.operations[name] = operation{method: o.Method, url: u, maxResult: o.MaxResult}
		}
		w.drains = append(w.drains, d)
	}
	return w, nil
}

// Run drains until ctx ends. Then it starts no more jobs, lets running calls go on for the grace
// period, aborts the remaining ones and gives their jobs back. It returns about when the longest
// running call ends, and at most 10 s after the grace period. It returns an error early if a queue
// can't be served, and at the end if handlers, which use the Redis clients, are still running. Run
// must be called at most once.
func (w *Worker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.listener.OnAbort(w.abort)
	var all sync.WaitGroup
	errs := make([]error, len(w.drains))
	for i, d := range w.drains {
		all.Go(func() {
			defer cancel() // a drain that can't run ends the others
			errs[i] = d.run(ctx, w.grace)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// abort ends the call of a job that its client has canceled, if this process makes it.
func (w *Worker) abort(id string) {
	backend, _ := jobs.ParseID(id)
	for _, d := range w.drains {
		if d.name == backend {
			d.runs.abort(id, errCanceled)
		}
	}
}

// run drains one backend until ctx and then its running calls have ended.
func (d *drain) run(ctx context.Context, grace time.Duration) error {
	defer d.caller.close()
	stop, err := d.queue.Serve(d.handle)
	if err != nil {
		return err
	}
	beat, endBeat := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { d.heartbeat(beat) })
	beating.Go(func() { d.reconcile(ctx) })
	beating.Go(func() { d.returnPermits(ctx) })
	defer beating.Wait()
	defer endBeat()

	d.dispatch(ctx)

	d.runs.stop()
	abort := time.AfterFunc(grace, func() {
		if n := d.runs.abortAll(errStopping); n > 0 {
			d.log.Warn("the grace period is over: running calls are aborted", "jobs", n)
		}
	})
	defer abort.Stop()
	giveUp := time.AfterFunc(grace+giveBackTime, d.runs.giveUp)
	defer giveUp.Stop()
	end, cancel := context.WithTimeout(context.Background(), grace+endTime)
	defer cancel()
	return stop(end)
}
