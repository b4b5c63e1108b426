package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// redis start [ARGUMENTS...]   a redis-server of the story's own; its URL is $REDIS_URL
// redis sentinel               a master, its replica and their sentinel, whose URL is $REDIS_URL
// redis kill                   kill -9
// redis restart                starts it again, at the same address and with its data
// redis load                   restart, while the story continues before the data is loaded
// redis hang, redis resume     stop it with its connections open, and resume it
// redis do COMMAND...          one command; its reply is on stdout
func redisCommand(s *story, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: redis start|sentinel|kill|restart|load|hang|resume|do")
	}
	verb, args := args[0], args[1:]
	if s.redis == nil && verb != "start" && verb != "sentinel" {
		return errors.New("no redis has been started")
	}
	switch verb {
	case "start":
		s.redis = redistest.Start(s.t, args...)
		s.rdb = s.redis.Client(s.t)
		s.ts.Setenv("REDIS_URL", s.redis.URL())
	case "sentinel":
		sentinel := redistest.StartSentinel(s.t)
		s.redis = sentinel.Master
		s.rdb = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.MasterName, SentinelAddrs: []string{sentinel.Addr},
		})
		s.t.Cleanup(func() { s.rdb.Close() })
		s.ts.Setenv("REDIS_URL", sentinel.URL())
	case "kill":
		s.redis.Kill()
	case "restart":
		s.redis.Restart()
	case "load":
		loaded := make(chan struct{})
		go func() { defer close(loaded); s.redis.Restart() }()
		s.t.Cleanup(func() { <-loaded })
	case "hang":
		s.redis.Stop()
	case "resume":
		s.redis.Cont()
	case "do":
		command := make([]any, len(args))
		for i, arg := range args {
			command[i] = arg
		}
		reply, err := s.rdb.Do(s.t.Context(), command...).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
		fmt.Fprintln(s.ts.Stdout(), reply)
	default:
		return fmt.Errorf("redis has no %q", verb)
	}
	return nil
}

// books BACKEND...
//
// expects the books of each backend to balance.
func booksCommand(s *story, args []string) error {
	if len(args) == 0 || s.rdb == nil {
		return errors.New("usage: books BACKEND..., with a redis started")
	}
	wrong := &differences{TB: s.t}
	for _, backend := range args {
		redistest.CheckBooks(wrong, s.rdb, backend)
	}
	return errors.Join(wrong.errs...)
}

// differences is a testing.TB that collects errors, which end the script at its line.
type differences struct {
	testing.TB
	errs []error
}

func (d *differences) Errorf(format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf(format, args...))
}
