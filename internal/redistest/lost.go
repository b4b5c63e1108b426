package redistest

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// ErrLost is what every command of a client of Lost ends with.
var ErrLost = errors.New("redistest: lost for good")

// Lost returns a client of a Redis that is lost for good: each command fails at once, and nothing is dialled. So it works within synctest too.
func Lost(t testing.TB) redis.UniversalClient {
	rdb := newClient(t, "nowhere:0")
	rdb.AddHook(lost{})
	return rdb
}

type lost struct{}

func (lost) DialHook(next redis.DialHook) redis.DialHook { return next }

func (lost) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(ErrLost)
		return ErrLost
	}
}

func (lost) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(ErrLost)
		}
		return ErrLost
	}
}
