package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
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

// carrier brings messages from process to process through one asynq queue. It executes, it does not decide: a message may be
// lost or come twice.
type carrier struct {
	queue  string // asynq's name for it
	most   int    // messages that one process handles at a time
	rdb    redis.UniversalClient
	client *asynq.Client
	gate   *gate
	log    *slog.Logger
}

func newCarrier(rdb redis.UniversalClient, queue string, most int, hold time.Duration, log *slog.Logger) carrier {
	return carrier{queue: queue, most: most, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), gate: newGate(hold), log: log}
}

// sendAtOnce is how many messages are on their way to Redis at one time: asynq takes a round trip for each.
const sendAtOnce = 8

// send sends n messages, each as task makes it. One that has the id of another that waits or is handled isn't sent again.
func (c *carrier) send(ctx context.Context, n int, task func(i int) (t *asynq.Task, id string)) error {
	failed := make([]error, n)
	one := func(i int) {
		t, id := task(i)
		_, err := c.client.EnqueueContext(ctx, t, asynq.Queue(c.queue), asynq.TaskID(id), asynq.MaxRetry(maxRetry), asynq.Timeout(noTimeout))
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			failed[i] = fmt.Errorf("send message %d of %d to queue %s: %w", i+1, n, c.queue, err)
			return
		}
		c.gate.open() // at once: the first starts while the rest are still being sent
	}
	if n == 1 {
		one(0)
		return failed[0]
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(sendAtOnce, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				one(i)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// serve calls handle for each message, as Queue.Serve says. One that handle can't read is dropped.
func (c *carrier) serve(handle func(payload []byte) error) (stop func(context.Context) error, err error) {
	server := asynq.NewServerFromRedisClient(newDequeuer(c.rdb, c.queue, c.gate), asynq.Config{
		Concurrency:       c.most,
		Queues:            map[string]int{c.queue: 1},
		TaskCheckInterval: noSleep,
		RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return retryIn },
		ShutdownTimeout:   noTimeout, // stop's context bounds the wait; asynq's own end would send running tasks again
		Logger:            asynqLog{c.log},
		LogLevel:          asynq.InfoLevel, // debug says "queue is empty" several times a second
	})
	// The task's context is left alone: asynq ends it where it has lost track of the task, and our own records alone say
	// whether an attempt still counts. Nor does asynq ever see an error, which would be a retry of its own.
	err = server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if err := handle(task.Payload()); err != nil {
			c.log.Warn("dropped a message that can't be read", "queue", c.queue, "error", err)
		}
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("serve queue %s: %w", c.queue, err)
	}
	stopped := make(chan struct{})
	begin := sync.OnceFunc(func() {
		c.gate.close() // first: asynq's stop waits for a dequeue that the gate holds
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
			return fmt.Errorf("stop queue %s: %w", c.queue, ctx.Err())
		}
	}, nil
}

// asynqLog passes asynq's words on: its chatter as debug, its troubles as warnings. It never ends the process.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.Error("asynq: " + fmt.Sprint(args...)) }
