package jobs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// asynqServers is asynq's set of the servers that live, of all processes, by when they are taken
// for dead (s). A member is the server's key: asynq:servers:{host:pid:id}.
const asynqServers = "asynq:servers"

// Workers counts the processes that take messages from any queue in this Redis, by the heartbeats
// of the last seconds. A process that was killed is counted for up to 10 s more.
func Workers(ctx context.Context, rdb redis.UniversalClient) (int, error) {
	// Thousands of processes would be some queues each.
	const most = 10_000
	members, err := rdb.ZRangeByScore(ctx, asynqServers, &redis.ZRangeBy{Max: "+inf",
		Min: strconv.FormatInt(time.Now().Unix(), 10), Count: most}).Result()
	if err != nil {
		return 0, fmt.Errorf("count workers: %w", err)
	}
	processes := map[string]bool{}
	for _, m := range members {
		end := strings.LastIndexByte(m, ':')
		if end < 0 {
			continue // another program's
		}
		processes[m[:end]] = true
	}
	return len(processes), nil
}
