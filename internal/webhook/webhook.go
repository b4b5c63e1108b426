// Package webhook notifies clients of the ends of their jobs, at the URLs that they have chosen.
// Webhooks are signed as defined by Standard Webhooks 1.0, are repeated by a schedule until they
// arrive, and go only to public addresses.
//
// The script that ends a job puts the job's id into the outbox of its backend. A relay in each
// worker process claims the deliveries that are due and sends a message for each to a process that
// is free (jobs.Deliveries). The Sender there makes an attempt, which is one request to the
// client's URL, and records in the outbox what follows. Each message has a claim in the outbox, and
// a delivery whose claim isn't settled becomes due again. So each end is delivered at least once,
// always with the same webhook-id, even if processes are killed.
//
// # The queue
//
// Webhooks have an asynq queue of their own, so that they take no slot of a backend. A lost, late
// or repeated message is harmless, since only the holder of the claim in the outbox makes the
// delivery attempt.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// End is the end of a job, and the receiver to notify.
type End struct {
	Client     string
	URL        string // "": there is no receiver
	FinishedAt time.Time
	ExpiresAt  time.Time // when the job's record is removed
	Type       string    // of the event
	Event      []byte    // the body of the webhook
}

// Errors of Jobs.End. Any other error means that the end can't be read at the moment.
var (
	ErrGone     = errors.New("the job is on record no more")
	ErrNotEnded = errors.New("the job hasn't ended")
)

// Jobs looks up how jobs ended. Safe for concurrent use.
type Jobs interface {
	// End returns the end of a job. It returns ErrGone if the job is no longer on record, and
	// ErrNotEnded if it was redriven and will end again.
	End(ctx context.Context, id string) (End, error)
}

// Transport carries deliveries from relays to senders, as jobs.Deliveries does.
type Transport interface {
	Send(context.Context, []jobs.Delivery) error
	Serve(handle func(jobs.Delivery)) (stop func(context.Context) error, err error)
	Waiting(context.Context) (int, error)
}

// Config has the dependencies and settings of a Sender. All of it is required.
type Config struct {
	Redis     redis.UniversalClient
	Transport Transport
	Backends  []string // the backends whose deliveries it makes
	Jobs      Jobs
	Clients   Clients
	Policy    Policy
	Grace     time.Duration // time for attempts under way to end at a stop
	Metrics   prometheus.Registerer
	Log       *slog.Logger
}

// slack is the time that an attempt may take beyond its timeout, waiting for a free process and for
// Redis, before another process makes it again.
const slack = 2 * time.Minute

// Sender delivers webhooks. Any number of processes may have one on the same Redis.
type Sender struct {
	Config
	outbox    *Outbox
	guard     time.Duration
	look      time.Duration // how late a relay notices a delivery without a wake-up
	silence   time.Duration // when the connection for wake-ups is given up; 0: pubsub's default
	transport *http.Transport
	inFlight  *inFlight
	metrics   *metrics
	wakes     map[string]chan struct{} // by backend

	attempts context.Context // of every attempt: ends when Grace is over
	abort    context.CancelFunc
}

// New returns a Sender. It registers metrics.
func New(c Config) *Sender {
	s := &Sender{Config: c, outbox: NewOutbox(c.Redis),
		guard: c.Policy.Timeout + slack, look: lookEvery,
		transport: c.Policy.transport(nil, nil), inFlight: newInFlight(),
		metrics: newMetrics(c.Metrics, c.Backends), wakes: map[string]chan struct{}{}}
	for _, backend := range c.Backends {
		s.wakes[backend] = make(chan struct{}, 1)
	}
	s.attempts, s.abort = context.WithCancel(context.Background())
	return s
}

// stopTime is how long aborted attempts may take to put themselves back into the outbox.
const stopTime = 5 * time.Second

// Run delivers webhooks until ctx ends. Then it takes no more deliveries, lets attempts under way
// end within Grace, and puts back those that don't. It starts without Redis. After Run has returned
// nil, the Redis client may be closed; an error means that attempts are still running. Run must be
// called at most once.
func (s *Sender) Run(ctx context.Context) error {
	defer s.abort()
	defer s.transport.CloseIdleConnections()
	stop, err := s.Transport.Serve(s.deliver)
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	var relays sync.WaitGroup
	for _, backend := range s.Backends {
		relays.Go(func() { s.relay(ctx, backend) })
	}
	relays.Go(func() { s.listen(ctx) })
	<-ctx.Done()
	relays.Wait()

	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Grace)
	defer cancel()
	if stop(grace) == nil {
		return nil
	}
	s.abort()
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancelLast()
	if err := stop(last); err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	return nil
}
