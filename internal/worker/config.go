package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Config has the dependencies and settings of a Worker.
type Config struct {
	Backends []Backend
	Listener Listener
	Stale    Stale // nil: good answers are not kept for later
	// Changed is called with each change of how a backend is treated that an attempt of this worker
	// made, and its sign; nil: nothing is. It must return soon.
	Changed func(backend string, change leaky.Change, cause leaky.Sign, f leaky.Feedback)
	// Lapsed is called with each override that has ended by itself, what it was and what the config
	// has, by the one worker that noticed; nil: nothing is. It must return soon.
	Lapsed  func(backend, setting, was, config string)
	Grace   time.Duration         // how long running calls may go on at a stop
	Log     *slog.Logger          // job ids and outcomes; never a payload, an answer or a key
	Metrics prometheus.Registerer // the forebay_job… and forebay_call… series are registered here
}

// Backend is one backend and how to call it. Its name is in the settings of Line.
type Backend struct {
	URL        string        // http or https; an operation's Path is appended
	Headers    http.Header   // sent with every call
	Timeout    time.Duration // of one call, from the connection to the answer's last byte
	Retry      Retry
	Operations map[string]Operation // by name: those that run on this backend
	Line       Line
	Queue      Queue
}

// Retry sets when a failed attempt is followed by another. The settings of the Line bound how many
// there are. Package strictyaml reads its tags, which are the keys of the config's file.
type Retry struct {
	// Base is the longest wait before the second attempt; it doubles with each further one, up to
	// Cap. The wait is drawn at random up to that bound.
	Base time.Duration `key:"base" default:"1s" range:"1ms to 24h"`
	Cap  time.Duration `key:"cap" default:"1m" range:"1ms to 24h"`
	// On are the backend's statuses after which a job is tried again, 400 to 599. It is also tried
	// again after timeouts and broken connections. Statuses above 500 that no standard knows, such
	// as a CDN's 520 to 524, count as 500.
	On []int `key:"on" max:"50" default:"[408, 425, 500, 502, 504, 507]"`
	// Rest are the statuses by which the backend asks for rest, 400 to 599 and none of On. They
	// close its gate for all jobs and use up no attempt. 529 is in no standard, but inference
	// servers answer it while they are overloaded.
	Rest []int `key:"rest" max:"50" default:"[429, 503, 529]"`
}

// Operation is one kind of call.
type Operation struct {
	Method    string
	Path      string // with the query, if any
	MaxResult int64  // bytes of an answer; a longer one fails the job
}

// Line is the part of a backend's line that the worker uses; *leaky.Line implements it. Each method
// is one atomic step, on Redis's clock. Start and Settle may be repeated by the same owner after an
// error.
type Line interface {
	Settings() leaky.Settings
	Release(ctx context.Context) (leaky.Release, error)
	Start(ctx context.Context, t jobs.Ticket, owner string) (leaky.Started, error)
	Renew(ctx context.Context, owner string, tickets []jobs.Ticket) ([]leaky.Renewal, error)
	Part(ctx context.Context, t jobs.Ticket, owner string, private bool) (leaky.PartOutcome, error)
	Settle(ctx context.Context, s leaky.Settlement) (leaky.SettleOutcome, leaky.Feedback, error)
	QueuePaused(ctx context.Context, paused bool) error
	Reconcile(ctx context.Context) (leaky.Reconciled, error)
	ReturnPermits(ctx context.Context) (orphans int64, more bool, err error)
}

// Queue carries tickets from the worker that released them to one that is free; *jobs.Queue
// implements it. It may lose tickets or deliver them twice. Serve calls handle for each ticket in a
// goroutine of its own. The stop function takes no more tickets, and waits for the handlers until
// its context ends.
type Queue interface {
	Send(ctx context.Context, tickets []jobs.Ticket) error
	Paused(ctx context.Context) (bool, error) // by asynq's own tools: it delivers nothing
	Serve(handle func(jobs.Ticket)) (stop func(context.Context) error, err error)
}

// Listener receives the messages that the lines of all processes publish; *leaky.Listener
// implements it. It may miss messages: polling makes up for them.
type Listener interface {
	Wake(backend string) <-chan struct{}
	OnAbort(f func(id string))
}

// Stale stores good answers, to be served later in place of new work, and removes those that later
// answers show to be invalid. It decides whether the job's operation stores answers and the backend
// allows it (jobs.Meta.Storing). It must be safe for concurrent use.
type Stale interface {
	Learn(ctx context.Context, job jobs.Job, meta jobs.Meta, body []byte) error
}

// validate returns an error for a developer if something is missing or out of bounds. Package
// config finds users' mistakes.
func (c Config) validate() error {
	switch {
	case c.Listener == nil, c.Log == nil, c.Metrics == nil:
		return errors.New("worker: Listener, Log and Metrics are required")
	case c.Grace < 0:
		return errors.New("worker: Grace is negative")
	}
	for _, b := range c.Backends {
		if err := b.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (b Backend) validate() error {
	if b.Line == nil || b.Queue == nil {
		return errors.New("worker: a backend has no Line or no Queue")
	}
	name := b.Line.Settings().Backend
	switch {
	case b.Timeout <= 0:
		return fmt.Errorf("worker: backend %s: Timeout must be over 0", name)
	case b.Retry.Base <= 0 || b.Retry.Cap < b.Retry.Base:
		return fmt.Errorf("worker: backend %s: Retry wants 0 < Base <= Cap", name)
	}
	for op, o := range b.Operations {
		if o.Method == "" || o.MaxResult <= 0 {
			return fmt.Errorf("worker: operation %s: Method and a MaxResult over 0 are required",
				op)
		}
	}
	return nil
}

// target returns an operation's URL.
func target(base, path string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(base, "/") + "/" + strings.TrimLeft(path, "/"))
	if err != nil {
		return nil, err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%s is no http or https address", u.Redacted())
	}
	return u, nil
}
