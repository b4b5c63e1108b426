package redistest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Errors of commands that a Faulty makes fail.
var (
	ErrNotApplied = errors.New("redistest: connection lost before the command was sent")
	ErrReplyLost  = errors.New("redistest: connection lost before the reply came")
)

// Faulty makes chosen commands of one client fail, once each. Safe for concurrent use.
type Faulty struct {
	mu     sync.Mutex
	faults []fault // guarded by mu; in order of arming
}

type fault struct {
	match   func(redis.Cmder) bool
	applied bool
}

// NewFaulty hooks into the client. If commands must not be retried, the client must be one that
// doesn't retry, as those of this package. A fault that has not struck when t ends fails t, which
// then tested nothing.
func NewFaulty(t testing.TB, rdb redis.UniversalClient) *Faulty {
	t.Helper()
	f := &Faulty{}
	rdb.AddHook(f)
	t.Cleanup(func() {
		if n := f.Armed(); n > 0 && !t.Failed() {
			t.Errorf("redistest: %d faults never struck", n)
		}
	})
	return f
}

// FailNext arms a fault for the next command that match accepts. The command is not sent and fails
// with ErrNotApplied; or, with applied, it is carried out and then fails with ErrReplyLost. If
// Redis itself answers with an error (such as NOSCRIPT), that error is passed on and the fault
// stays armed. A pipeline or transaction fails as a whole with any of its commands. match never
// sees the commands that set up a connection.
func (f *Faulty) FailNext(match func(cmd redis.Cmder) bool, applied bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fault{match, applied})
}

// Armed returns the number of faults that have not struck.
func (f *Faulty) Armed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.faults)
}

// Any matches every command.
func Any(redis.Cmder) bool { return true }

// strike removes and returns the first armed fault that matches one of the commands.
func (f *Faulty) strike(cmds ...redis.Cmder) (fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.faults {
		for _, cmd := range cmds {
			if !handshake(cmd) && fault.match(cmd) {
				f.faults = append(f.faults[:i:i], f.faults[i+1:]...)
				return fault, true
			}
		}
	}
	return fault{}, false
}

func (f *Faulty) rearm(again fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append([]fault{again}, f.faults...)
}

// handshake reports whether the client itself sends the command on a new connection.
func handshake(cmd redis.Cmder) bool {
	switch strings.ToLower(cmd.Name()) {
	case "hello", "auth", "select", "client", "readonly":
		return true
	}
	return false
}

// DialHook is part of redis.Hook.
func (f *Faulty) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

// ProcessHook is part of redis.Hook.
func (f *Faulty) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fault, ok := f.strike(cmd)
		if !ok {
			return next(ctx, cmd)
		}
		err := ErrNotApplied
		if fault.applied {
			if err := next(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
				f.rearm(fault) // such as NOSCRIPT: nothing was carried out
				return err
			}
			err = ErrReplyLost
		}
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook is part of redis.Hook.
func (f *Faulty) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		fault, ok := f.strike(cmds...)
		if !ok {
			return next(ctx, cmds)
		}
		err := ErrNotApplied
		if fault.applied {
			next(ctx, cmds) // a command's own error is lost with its reply
			err = ErrReplyLost
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}
