package jobs_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

// However many queues a process serves, it counts as one worker; a dead one and another program's
// entry don't count.
func TestWorkersAreCountedByTheirProcesses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t, "--appendonly", "no").Client(t)
	count := func() int {
		t.Helper()
		n, err := jobs.Workers(t.Context(), rdb)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 0 {
		t.Errorf("%d workers at first", n)
	}
	for _, backend := range []string{"one", "two"} {
		serve(t, jobs.NewQueue(rdb, backend, slog.New(slog.DiscardHandler)), func(jobs.Ticket) {})
	}
	deadline := time.Now().Add(10 * time.Second)
	for count() != 1 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	add := func(member string, alive time.Duration) {
		t.Helper()
		until := float64(time.Now().Add(alive).Unix())
		if err := rdb.ZAdd(t.Context(), "asynq:servers",
			redis.Z{Score: until, Member: member}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add("asynq:servers:{host:7:a}", time.Minute)
	add("asynq:servers:{host:7:b}", time.Minute)
	add("asynq:servers:{dead:8:a}", -time.Minute)
	add("junk", time.Minute)
	if n := count(); n != 2 {
		t.Errorf("%d workers, want this process and host:7", n)
	}
}
