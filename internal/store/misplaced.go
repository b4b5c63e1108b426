package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// misplacedFor is how long a warning stands after the last error on its keys: long enough for a
	// probe to see it, and gone soon after the fault.
	misplacedFor = time.Minute
	// maxMisplaced bounds the warnings: more of them wouldn't help.
	maxMisplaced = 8
)

// misplaced records the keys that hold a value of another type than a command needs, since Redis's
// own error doesn't name them. It leaves scripts whose first key is a line to leaky.Line, since
// they build most of their keys. It is safe for concurrent use.
type misplaced struct {
	found func(warning string) // called for each new warning

	mu    sync.Mutex
	until map[string]time.Time // guarded by mu: by warning
}

func newMisplaced(found func(warning string)) *misplaced {
	return &misplaced{found: found, until: map[string]time.Time{}}
}

func (m *misplaced) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *misplaced) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		m.look(cmd, err)
		return err
	}
}

func (m *misplaced) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			m.look(cmd, cmd.Err())
		}
		return err
	}
}

func (m *misplaced) look(cmd redis.Cmder, err error) {
	if err == nil || err == redis.Nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		return
	}
	keys := keysOf(cmd.Args())
	if len(keys) == 0 || len(keys) > 1 && strings.HasSuffix(keys[0], ":line") {
		return
	}
	text := strings.Join(keys, ", ") + " holds"
	if len(keys) > 1 {
		text = "One of " + strings.Join(keys, ", ") + " holds"
	}
	text += " a value of another type than Forebay keeps there: " +
		"remove it (DEL), or move it away (RENAME)."
	now := time.Now()
	m.mu.Lock()
	until, known := m.until[text]
	if known || len(m.until) < maxMisplaced {
		m.until[text] = now.Add(misplacedFor)
	}
	m.mu.Unlock()
	if !until.After(now) {
		m.found(text)
	}
}

// keysOf returns the keys that a command names.
func keysOf(args []any) (keys []string) {
	if len(args) < 2 {
		return nil
	}
	first, last := 1, 2
	if name := strings.ToLower(fmt.Sprint(args[0])); strings.HasPrefix(name, "eval") &&
		len(args) > 2 {
		n, _ := strconv.Atoi(fmt.Sprint(args[2])) // written by go-redis
		first, last = 3, min(3+n, len(args))
	}
	for _, key := range args[first:last] {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}

// warnings returns the warnings that still stand, sorted.
func (m *misplaced) warnings() (all []string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for text, until := range m.until {
		if until.After(now) {
			all = append(all, text)
		} else {
			delete(m.until, text)
		}
	}
	slices.Sort(all)
	return all
}
