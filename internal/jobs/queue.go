package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// MaxConcurrency is the number of calls of one backend that a process can have in flight at once:
// asynq needs such a bound when a server starts. It is above any concurrency that a backend may be
// tuned to, so tuning needs no restart. Unused concurrency costs nothing.
const MaxConcurrency = 10_000

const taskType = "forebay:attempt"

// Queue carries the tickets of one backend from the process that released them to a worker. A
// ticket may be lost or come twice; the line's leases and Start handle both. It is one asynq queue
// with the backend's name. Safe for concurrent use.
type Queue struct{ carrier }

// NewQueue returns the queue of a backend. The caller closes rdb, which must not retry commands by
// itself.
func NewQueue(rdb redis.UniversalClient, backend string, log *slog.Logger) *Queue {
	return &Queue{newCarrier(rdb, backend, MaxConcurrency, holdTime, log.With("backend", backend))}
}

// Send sends each ticket to the worker that asks first, most likely that of this process. A ticket
// that was sent before is not sent again. After an error some of the tickets may not have been
// sent; their jobs return to the line when the leases expire.
func (q *Queue) Send(ctx context.Context, tickets []Ticket) error {
	return q.send(ctx, len(tickets), func(i int) (task *asynq.Task, id string) {
		return asynq.NewTask(taskType, encodeTicket(tickets[i])), taskID(tickets[i])
	})
}

// Paused reports whether the queue was paused with asynq's own tools. A paused queue delivers
// nothing.
func (q *Queue) Paused(ctx context.Context) (bool, error) {
	n, err := q.rdb.Exists(ctx, "asynq:{"+q.queue+"}:paused").Result()
	return n > 0, err
}

// Serve calls handle for each ticket that this process gets, each in a goroutine of its own, until
// stop is called. It can be called while Redis is unavailable: work then begins when Redis is back.
// It must be called at most once.
//
// stop takes no more tickets from the queue and waits until every handle has returned. If its
// context ends first, it returns the context's error and the remaining handles keep running. It may
// be called again. The Redis client must stay open until stop has returned nil: asynq 0.26 panics
// if it is closed under a running server.
func (q *Queue) Serve(handle func(Ticket)) (stop func(context.Context) error, err error) {
	return q.serve(func(payload []byte) error {
		t, err := decodeTicket(payload)
		if err == nil {
			handle(t)
		}
		return err
	})
}

// taskID returns the same id each time that a release is sent, so the release is in the queue only
// once.
func taskID(t Ticket) string { return t.ID + ":" + strconv.FormatInt(t.Run, 10) }

// encodeTicket makes short payloads, because asynq's heartbeat writes the payload of every running
// task every 5 s.
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
