// Package webhook tells the ends of jobs to the URLs that their clients want them told to: signed by Standard Webhooks 1.0, repeated
// until they arrive, and to public addresses alone.
//
// The script that ends a job puts its id into the outbox of its backend. A relay in each worker process takes what is due from there and
// sends it, as a message, to whichever process has hands free (jobs.Deliveries); a Sender makes the attempt and says in the outbox what
// follows. The outbox decides, the messages execute: whoever has one holds a claim, and a claim that nobody settles is due again. So an
// end is told at least once, each time with the same webhook-id, whatever is killed in between.
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

// End is how a job ended, and who is told.
type End struct {
	Client     string
	URL        string // "": nobody is told
	FinishedAt time.Time
	ExpiresAt  time.Time // when the job's record is removed
	Type       string    // of the event
	Event      []byte    // the body: what is told
}

// Errors of Jobs.End. Others mean that it can't be told now.
var (
	ErrGone     = errors.New("the job is on record no more")
	ErrNotEnded = errors.New("the job hasn't ended")
)

// Jobs knows how jobs end. Safe for concurrent use.
type Jobs interface {
	// End tells how a job ended. ErrGone: it is on record no more. ErrNotEnded: it was redriven, and will end again.
	End(ctx context.Context, id string) (End, error)
}

// Transport carries deliveries from relays to senders, as jobs.Deliveries does.
type Transport interface {
	Send(context.Context, []jobs.Delivery) error
	Serve(handle func(jobs.Delivery)) (stop func(context.Context) error, err error)
	Waiting(context.Context) (int, error)
}

// Config is what a Sender is put together from. All of it is required.
type Config struct {
	Redis     redis.UniversalClient
	Transport Transport
	Backends  []string // whose jobs' ends are told
	Jobs      Jobs
	Clients   Clients
	Policy    Policy
	Grace     time.Duration // what attempts under way get when it stops
	Metrics   prometheus.Registerer
	Log       *slog.Logger
}

// slack is what an attempt may take beyond its timeout, waits for hands and for Redis included, before another process makes it anew.
const slack = 2 * time.Minute

// Sender tells the ends of jobs. Any number of processes may have one on the same Redis.
type Sender struct {
	Config
	outbox    *Outbox
	guard     time.Duration
	transport *http.Transport
	places    *places
	metrics   *metrics
	wakes     map[string]chan struct{} // by backend

	attempts context.Context // of every attempt: ended once Grace is over
	abort    context.CancelFunc
}

// New returns a Sender. It registers its metrics.
func New(c Config) *Sender {
	s := &Sender{Config: c, outbox: NewOutbox(c.Redis), guard: c.Policy.Timeout + slack, transport: c.Policy.transport(nil, nil), places: newPlaces(),
		metrics: newMetrics(c.Metrics, c.Backends), wakes: map[string]chan struct{}{}}
	for _, backend := range c.Backends {
		s.wakes[backend] = make(chan struct{}, 1)
	}
	s.attempts, s.abort = context.WithCancel(context.Background())
	return s
}

// stopTime is what aborted attempts get to put themselves back.
const stopTime = 5 * time.Second

// Run tells what is due until ctx ends. Then it takes up nothing more, lets attempts under way end within Grace, and puts back what
// doesn't. It needs no Redis to start. After nil Redis may be closed; an error says that something is left running. It runs once.
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
