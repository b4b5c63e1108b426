package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// MaxConcurrency is how many calls of one backend a process can have in flight at once: the bound that asynq wants
// when a server starts. It lies above any concurrency that a backend may be tuned to, so tuning needs no restart. A
// place that is free costs nothing.
const MaxConcurrency = 10_000

const (
	taskType = "forebay:attempt"
	// maxRetry lets a killed worker's task come back, as a message that nobody needs, and vanish. With 0 asynq
	// would archive it unread, for 90 days.
	maxRetry = 3
	retryIn  = 5 * time.Second // asynq forwards each 5 s: sooner is of no use
	// noTimeout is longer than any call: how long an attempt may take is the worker's to say. asynq can't be told
	// "never": it reads 0 as 30 minutes.
	noTimeout = 366 * 24 * time.Hour
	// noSleep is as short as asynq's sleep after a dequeue that found nothing can be: the gate has waited before it.
	// With 1 ms a ticket that is sent right after the last one ended takes 1.9 ms to its handler, so 0.2.
	noSleep = time.Nanosecond
)

// Queue carries the tickets of one backend from the process that released them to a worker. It executes, it does not
// decide: a ticket may be lost or come twice, and the line's leases and Start put both right. Inside it is one asynq
// queue of the backend's name. Safe for concurrent use.
type Queue struct {
	backend string
	rdb     redis.UniversalClient
	client  *asynq.Client
	gate    *gate
	log     *slog.Logger
}

// NewQueue returns the queue of a backend. The client stays the caller's; it must not retry commands by itself.
func NewQueue(rdb redis.UniversalClient, backend string, log *slog.Logger) *Queue {
	return &Queue{
		backend: backend,
		rdb:     rdb,
		client:  asynq.NewClientFromRedisClient(rdb),
		gate:    newGate(),
		log:     log.With("backend", backend),
	}
}

// sendAtOnce is how many tickets are on their way to Redis at one time: asynq takes a round trip for each.
const sendAtOnce = 8

// Send hands tickets to whichever worker asks first, most likely this process's own. A ticket that was sent before is
// not sent again. On an error some of the tickets may not have been sent; their leases bring them back.
func (q *Queue) Send(ctx context.Context, tickets []Ticket) error {
	failed := make([]error, len(tickets))
	send := func(i int) {
		task := asynq.NewTask(taskType, encodeTicket(tickets[i]))
		_, err := q.client.EnqueueContext(ctx, task, asynq.Queue(q.backend), asynq.TaskID(taskID(tickets[i])),
			asynq.MaxRetry(maxRetry), asynq.Timeout(noTimeout))
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			failed[i] = fmt.Errorf("send ticket %d of %d to queue %s: %w", i+1, len(tickets), q.backend, err)
			return
		}
		q.gate.open() // at once: the first starts while the rest are still being sent
	}
	if len(tickets) == 1 {
		send(0)
		return failed[0]
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(sendAtOnce, len(tickets)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(tickets); i = int(next.Add(1)) - 1 {
				send(i)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// Serve calls handle for each ticket that this process gets, each in a goroutine of its own, until stop is called.
// It needs no Redis to start: it takes up work when Redis is there. A Queue serves once.
//
// stop takes nothing new from the queue and waits until every handle has returned, or until its context ends: then it
// returns the context's error and leaves what still runs behind. It may be called again. The Redis client must stay
// open until stop has returned nil: asynq 0.26 panics where it is closed under a server.
func (q *Queue) Serve(handle func(Ticket)) (stop func(context.Context) error, err error) {
	server := asynq.NewServerFromRedisClient(newDequeuer(q.rdb, q.backend, q.gate), asynq.Config{
		Concurrency:       MaxConcurrency,
		Queues:            map[string]int{q.backend: 1},
		TaskCheckInterval: noSleep,
		RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return retryIn },
		ShutdownTimeout:   noTimeout, // stop's context bounds the wait; asynq's own end would send running tickets again
		Logger:            asynqLog{q.log},
		LogLevel:          asynq.InfoLevel, // debug says "queue is empty" several times a second
	})
	// The task's context is left alone: asynq ends it where it has lost track of the task, and the line alone says
	// whether an attempt still counts. Nor does asynq ever see an error, which would be a retry of its own.
	err = server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		t, err := decodeTicket(task.Payload())
		if err != nil {
			q.log.Warn("dropped a message that is no ticket", "error", err)
			return nil
		}
		handle(t)
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("serve queue %s: %w", q.backend, err)
	}
	stopped := make(chan struct{})
	begin := sync.OnceFunc(func() {
		q.gate.close() // first: asynq's stop waits for a dequeue that the gate holds
		go func() {
			defer close(stopped)
			server.Shutdown()
		}()
	})
	return func(ctx context.Context) error {
		begin()
		select {
		case <-stopped:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop queue %s: %w", q.backend, ctx.Err())
		}
	}, nil
}

// taskID names a release, so sending it twice is sending it once.
func taskID(t Ticket) string { return t.ID + ":" + strconv.FormatInt(t.Run, 10) }

// encodeTicket is short on purpose: asynq's heartbeat writes the payload of every running task each 5 s.
func encodeTicket(t Ticket) []byte { return fmt.Appendf(nil, "%s %d %d", t.ID, t.Run, t.Due) }

func decodeTicket(payload []byte) (Ticket, error) {
	parts := strings.Split(string(payload), " ")
	if len(parts) != 3 {
		return Ticket{}, fmt.Errorf("ticket has %d parts, not 3", len(parts))
	}
	run, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return Ticket{}, fmt.Errorf("ticket's run: %w", err)
	}
	due, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return Ticket{}, fmt.Errorf("ticket's due time: %w", err)
	}
	return Ticket{ID: parts[0], Run: run, Due: due}, nil
}

// asynqLog passes asynq's words on: its chatter as debug, its troubles as warnings. It never ends the process.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.Error("asynq: " + fmt.Sprint(args...)) }
