package jobs

import (
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// DecodeTicket reads a message of a queue.
func DecodeTicket(payload []byte) (Ticket, error) { return decodeTicket(payload) }

// EnqueueRaw puts any message into a backend's queue.
func EnqueueRaw(t *testing.T, rdb redis.UniversalClient, backend, payload string) {
	t.Helper()
	task := asynq.NewTask(taskType, []byte(payload))
	if _, err := asynq.NewClientFromRedisClient(rdb).EnqueueContext(t.Context(), task,
		asynq.Queue(backend)); err != nil {
		t.Fatal(err)
	}
}

// Rest is the wait after n failed dequeues.
var Rest = rest

// Pause pauses a backend's queue as asynq's own tools do, and returns a function that resumes it.
func Pause(t *testing.T, rdb redis.UniversalClient, backend string) (resume func()) {
	t.Helper()
	tool := asynq.NewInspectorFromRedisClient(rdb)
	if err := tool.PauseQueue(backend); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tool.UnpauseQueue(backend); err != nil {
			t.Fatal(err)
		}
	}
}
