package redistest

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// ErrUnavailable is the error of every command of a client of Unavailable.
var ErrUnavailable = errors.New("redistest: unavailable for good")

// Unavailable returns a client of a Redis that never answers: each command fails at once, and
// nothing is dialed. So it works within synctest too.
func Unavailable(t testing.TB) redis.UniversalClient {
	rdb := newClient(t, "nowhere:0")
	rdb.AddHook(unavailable{})
	return rdb
}

type unavailable struct{}

func (unavailable) DialHook(next redis.DialHook) redis.DialHook { return next }

func (unavailable) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(ErrUnavailable)
		return ErrUnavailable
	}
}

func (unavailable) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(ErrUnavailable)
		}
		return ErrUnavailable
	}
}
