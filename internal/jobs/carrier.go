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
	// maxRetry makes asynq return the task of a killed worker, which is then dropped as a stale
	// message. With 0 asynq would archive it for 90 days.
	maxRetry = 3
	retryIn  = 5 * time.Second // asynq forwards retries every 5 s, so a shorter time has no effect
	// noTimeout is longer than any call, since the worker bounds how long an attempt may take.
	// asynq has no value for "never": it reads 0 as 30 minutes.
	noTimeout = 366 * 24 * time.Hour
	// noSleep is asynq's shortest sleep after an empty dequeue, since the gate has waited already.
	// A ticket that is sent right after the last one ended reaches its handler in 0.2 ms; with a
	// sleep of 1 ms it takes 1.9 ms.
	noSleep = time.Nanosecond
)

// carrier carries messages from process to process through one asynq queue. A message may be lost
// or come twice.
type carrier struct {
	queue  string // asynq's name of the queue
	most   int    // messages that one process handles at a time
	rdb    redis.UniversalClient
	client *asynq.Client
	gate   *gate
	log    *slog.Logger
}

func newCarrier(
	rdb redis.UniversalClient, queue string, most int, hold time.Duration, log *slog.Logger,
) carrier {
	return carrier{queue: queue, most: most, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb),
		gate: newGate(hold), log: log}
}

// sendAtOnce is how many messages are being sent at a time: asynq takes a round trip for each.
const sendAtOnce = 8

// send sends n messages, each made by task. A message isn't sent if one with its id is waiting or
// being handled.
func (c *carrier) send(
	ctx context.Context, n int, task func(i int) (t *asynq.Task, id string),
) error {
	failed := make([]error, n)
	one := func(i int) {
		t, id := task(i)
		_, err := c.client.EnqueueContext(ctx, t, asynq.Queue(c.queue), asynq.TaskID(id),
			asynq.MaxRetry(maxRetry), asynq.Timeout(noTimeout))
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			failed[i] = fmt.Errorf("send message %d of %d to queue %s: %w", i+1, n, c.queue, err)
			return
		}
		c.gate.open() // now: the first can start while the rest are being sent
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

// serve calls handle for each message, as documented at Queue.Serve. A message that handle can't
// read is dropped.
func (c *carrier) serve(
	handle func(payload []byte) error,
) (stop func(context.Context) error, err error) {
	server := asynq.NewServerFromRedisClient(newDequeuer(c.rdb, c.queue, c.gate), asynq.Config{
		Concurrency:       c.most,
		Queues:            map[string]int{c.queue: 1},
		TaskCheckInterval: noSleep,
		RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return retryIn },
		// The context of stop bounds the wait. asynq's own timeout would send running tasks again.
		ShutdownTimeout: noTimeout,
		Logger:          asynqLog{c.log},
		// At debug asynq logs "queue is empty" several times a second.
		LogLevel: asynq.InfoLevel,
	})
	// The task's context is ignored: asynq cancels it when it has lost track of the task, but only
	// the job's own state decides whether an attempt still counts. asynq never gets an error
	// either, because it would retry the task by itself.
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
		c.gate.close() // first: asynq's Shutdown waits for a dequeue that the gate holds
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

// asynqLog passes asynq's log messages on: information as debug, errors as warnings. It never ends
// the process.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.Error("asynq: " + fmt.Sprint(args...)) }
