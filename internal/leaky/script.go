package leaky

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// Every script of the line begins with the prelude: keys, clock, settings with overrides, and
// common functions.
//
//go:embed scripts/prelude.lua
var prelude string

//go:embed scripts/offer.lua
var offerLua string

//go:embed scripts/release.lua
var releaseLua string

//go:embed scripts/start.lua
var startLua string

//go:embed scripts/renew.lua
var renewLua string

//go:embed scripts/settle.lua
var settleLua string

//go:embed scripts/part.lua
var partLua string

//go:embed scripts/cancel.lua
var cancelLua string

//go:embed scripts/purge.lua
var purgeLua string

// Used by two scripts that read the standing of jobs by id.
//
//go:embed scripts/where.lua
var where string

//go:embed scripts/look.lua
var lookLua string

//go:embed scripts/tune.lua
var tuneLua string

//go:embed scripts/stop.lua
var stopLua string

//go:embed scripts/status.lua
var statusLua string

//go:embed scripts/due.lua
var dueLua string

//go:embed scripts/explain.lua
var explainLua string

//go:embed scripts/health.lua
var healthLua string

// Used by two scripts that go through a zset part by part.
//
//go:embed scripts/walk.lua
var walk string

//go:embed scripts/list.lua
var listLua string

//go:embed scripts/mine.lua
var mineLua string

//go:embed scripts/redrive.lua
var redriveLua string

//go:embed scripts/preview.lua
var previewLua string

//go:embed scripts/books.lua
var booksLua string

//go:embed scripts/reconcile.lua
var reconcileLua string

//go:embed scripts/permits.lua
var permitsLua string

// statusFunction is status as a part of another script.
var statusFunction = "local function status()\n" + statusLua + "end\n"

var (
	offerScript   = redis.NewScript(prelude + offerLua)
	releaseScript = redis.NewScript(prelude + releaseLua)
	startScript   = redis.NewScript(prelude + startLua)
	renewScript   = redis.NewScript(prelude + renewLua)
	settleScript  = redis.NewScript(prelude + settleLua)
	partScript    = redis.NewScript(prelude + partLua)
	cancelScript  = redis.NewScript(prelude + cancelLua)
	purgeScript   = redis.NewScript(prelude + purgeLua)
	lookScript    = redis.NewScript(prelude + where + lookLua)
	tuneScript    = redis.NewScript(prelude + tuneLua)
	stopScript    = redis.NewScript(prelude + stopLua)
	healthScript  = redis.NewScript(prelude + healthLua)
	statusScript  = redis.NewScript(prelude + statusLua)
	dueScript     = redis.NewScript(prelude + dueLua)
	explainScript = redis.NewScript(prelude + statusFunction + where + explainLua)

	listScript      = redis.NewScript(prelude + walk + listLua)
	mineScript      = redis.NewScript(prelude + where + mineLua)
	redriveScript   = redis.NewScript(prelude + redriveLua)
	previewScript   = redis.NewScript(prelude + previewLua)
	booksScript     = redis.NewScript(prelude + booksLua)
	reconcileScript = redis.NewScript(prelude + walk + reconcileLua)
	permitsScript   = redis.NewScript(prelude + permitsLua)
)

// run calls one script with the prelude's arguments before its own. A script that Redis doesn't
// have (after a restart) is sent as a whole. No other call is repeated: after a lost reply the
// script may have run.
func (l *Line) run(ctx context.Context, script *redis.Script, args ...any) (answer, error) {
	return l.runOn(ctx, script, l.keys, args...)
}

// runOn is like run, with keys after those of the line.
func (l *Line) runOn(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (answer, error) {
	s := l.settings
	all := make([]any, 0, 8+len(args))
	all = append(all, l.now(), jobs.KeyPrefix(s.Backend), s.Rate.Interval(), s.Burst, s.Concurrency,
		s.Capacity, flag(bool(s.Feedback)), s.KeepFailed.Milliseconds())
	all = append(all, args...)
	values, err := script.Run(ctx, l.rdb, keys, all...).Slice()
	if err != nil {
		if strings.Contains(err.Error(), "WRONGTYPE") { // not at the beginning in Redis 6.2
			err = l.wrongType(ctx, script, args, err)
		}
		return answer{}, fmt.Errorf("line of %s: %w", s.Backend, err)
	}
	return answer{values: values}, nil
}

// flag returns a switch as a script's argument.
func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// micros returns a duration as a script's argument.
func micros(d time.Duration) int64 { return d.Microseconds() }

var errAnswer = errors.New("a script's answer isn't what its contract says")

// answer reads a script's values one by one. A value that doesn't fit the script's contract sets
// err.
type answer struct {
	values []any
	err    error
}

func (a *answer) next() any {
	if len(a.values) == 0 {
		a.err = errAnswer
		return nil
	}
	v := a.values[0]
	a.values = a.values[1:]
	return v
}

// text reads a string; nil is "".
func (a *answer) text() string {
	switch v := a.next().(type) {
	case string:
		return v
	case nil:
		return ""
	default:
		a.err = errAnswer
		return ""
	}
}

// number reads an integer, sent as such or as decimal text; nil or "" is 0.
func (a *answer) number() int64 {
	switch v := a.next().(type) {
	case int64:
		return v
	case string:
		if v == "" {
			return 0
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			a.err = errAnswer
		}
		return n
	case nil:
		return 0
	default:
		a.err = errAnswer
		return 0
	}
}

// real reads a number sent as decimal text.
func (a *answer) real() float64 {
	x, err := strconv.ParseFloat(a.text(), 64)
	if err != nil {
		a.err = errAnswer
	}
	return x
}

func (a *answer) micros() time.Duration { return time.Duration(a.number()) * time.Microsecond }

// when reads a time; 0 is the zero time.
func (a *answer) when() time.Time {
	if n := a.number(); n != 0 {
		return time.UnixMicro(n)
	}
	return time.Time{}
}

// list reads a nested table.
func (a *answer) list() *answer {
	v, ok := a.next().([]any)
	if !ok {
		a.err = errAnswer
	}
	return &answer{values: v}
}

// integers reads the remaining values.
func (a *answer) integers() []int64 {
	all := make([]int64, len(a.values))
	for i := range all {
		all[i] = a.number()
	}
	return all
}
