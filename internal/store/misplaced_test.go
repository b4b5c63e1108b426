package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

// If any command meets a key that holds another program's value, alone, in a pipeline or in a
// script, the log and the warnings name the key.
func TestAMisplacedKeyIsNamed(t *testing.T) {
	t.Parallel()
	s, log := connected(t, "unix://"+redistest.Client(t).(*redis.Client).Options().Addr)
	ctx, rdb := t.Context(), s.Client()
	one, two, three := redistest.Name(t, "one"), redistest.Name(t, "two"),
		redistest.Name(t, "three")
	for _, key := range []string{one, two, three} {
		if err := rdb.Set(ctx, key, "text", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	before := len(s.Warnings())
	rdb.Get(ctx, redistest.Name(t, "nothing"))
	rdb.LPush(ctx, one, "x")
	rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Get(ctx, one)
		pipe.HGetAll(ctx, two)
		return nil
	})
	script := redis.NewScript("return redis.call('ZCARD', KEYS[1])")
	script.Run(ctx, rdb, []string{three}, 1)
	warnings := s.Warnings()
	for _, key := range []string{one, two, three} {
		named := func(text string) bool {
			return strings.HasPrefix(text, key+" holds a value of another type")
		}
		if !slices.ContainsFunc(warnings, named) {
			t.Errorf("no warning names %s: %q", key, warnings)
		}
		if len(log.lines(key+" holds")) != 1 {
			t.Errorf("the log doesn't name %s once", key)
		}
	}
	if len(warnings) != before+3 {
		t.Errorf("there are %d warnings, want %d: %q", len(warnings), before+3, warnings)
	}
}
