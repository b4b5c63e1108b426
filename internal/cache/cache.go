// Package cache holds what is already known: the last good answer of the backend to each request, in Redis (Cache), and before that in
// the memory of the process that they passed through (Memory), which spares Redis the crowd and outlives it.
//
// One key holds one answer, with a TTL of as long as the operation's config lets it be served; so the cache needs no
// sweeping, and its size is what was answered within that time. Operators find them by lists (stored.go), which end by themselves too. Ages come from Redis's clock alone (how long the answer is
// good, less the TTL that is left): host clocks may differ or step.
// In memory an answer goes on ageing by the process's monotonic clock, from the age that it had.
//
// Only good answers (2xx) get in. A backend that fails for a moment can't leave its error page behind to be served when it is well again.
//
// The youngest answer wins. A job may be called twice, and jobs with one payload may end in any order; both answers are good,
// and Put never replaces one by an older one, as far as its callers tell how old theirs is.
//
// # Memory before Redis
//
// An answer in memory is believed for a second. So a popular answer is read from Redis once a
// second per process, and concurrent reads share one call. That there is no answer is never
// believed: Redis is asked each time, so that a client that sees its job done finds the answer. The
// worker stores the answer before it settles the job.
//
// # Lists and purges
//
// Lists of stored answers are for operators alone. There is one per operation, written before the
// answer, so that no answer escapes a purge. A purge changes a marker that every process reads once
// a second, since messages can be missed. The removal of a single answer is a message, and a line
// in a bounded log that is read with the marker.
package cache

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/groupcommit"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/transfer"
)

// Answer is what the backend said to a request.
type Answer struct {
	Status      int           // 200 to 299
	ContentType string        // "" where the backend sent none
	Fields      jobs.Fields   // others that go with the body
	Body        []byte        // byte for byte
	Age         time.Duration // how long ago the backend gave it, at milliseconds, by Redis's clock

	hidden []string // marks of the clients from whom it is kept
}

// HiddenFrom reports whether the answer is kept from a client that purged it (Hide).
func (a Answer) HiddenFrom(client string) bool { return slices.Contains(a.hidden, markOf(client)) }

const (
	// MaxBody bounds a stored body: as much as the config lets a result have (max_result). Redis sends it in some 50 ms on
	// one host, well within the 1 s that a degraded answer may take.
	MaxBody = 64 << 20
	// MaxContentType bounds a stored content type; real ones are under 100 bytes.
	MaxContentType = 1 << 10
	// maxHead bounds what stands before a body.
	maxHead = maxLine + MaxContentType + 1 + jobs.MaxFields
)

// What Put refuses.
var (
	ErrNotGood  = errors.New("only answers with status 200 to 299 are stored")
	ErrTooLarge = fmt.Errorf("answers over %d bytes, or with a content type over %d, are not stored", MaxBody, MaxContentType)
)

// Cache reads and writes stored answers. Safe for concurrent use.
type Cache struct {
	rdb    redis.UniversalClient
	reads  *groupcommit.Collector[string, found] // of what a small answer is, or how a large one begins
	larges *groupcommit.Collector[string, found]
}

// New returns a Cache on rdb.
func New(rdb redis.UniversalClient) *Cache {
	c := &Cache{rdb: rdb}
	c.reads = groupcommit.New(maxTogether, readTime, c.readSmall).Overlap(maxTrips)
	c.larges = groupcommit.New(1, readTime, c.readLarge).Overlap(maxLarge)
	return c
}

//go:embed put.lua
var putSource string

var putScript = redis.NewScript(putSource)

// check says whether a may be stored: ErrNotGood, ErrTooLarge or nil.
func (a Answer) check() error {
	if a.Status < 200 || a.Status > 299 {
		return fmt.Errorf("status %d: %w", a.Status, ErrNotGood)
	}
	if len(a.Body) > MaxBody || len(a.ContentType) > MaxContentType || len(a.Fields) > jobs.MaxFields {
		return ErrTooLarge
	}
	return nil
}

// Put stores a under key until it is keepFor old, as an answer to a request of the given owner. a.Age says how old it is already; an answer that
// is too old by then, or older than the one that is stored, is dropped in silence. Errors: ErrNotGood and ErrTooLarge (nothing was stored), or Redis's
// (it may have been stored; calling again does no harm). An answer of no operation is in no list: operators find it by its key alone.
func (c *Cache) Put(ctx context.Context, key string, a Answer, keepFor time.Duration, of Owner) error {
	_, err := c.put(ctx, key, a, keepFor, of)
	return err
}

// put is Put, and tells whether a is what is stored now.
func (c *Cache) put(ctx context.Context, key string, a Answer, keepFor time.Duration, of Owner) (stored bool, err error) {
	if err := a.check(); err != nil {
		return false, fmt.Errorf("store answer: %w", err)
	}
	good, age := keepFor.Milliseconds(), max(a.Age, 0).Milliseconds()
	if age >= good {
		return false, nil
	}
	if of.Operation != "" { // first: an answer that is in no list would escape a purge
		if err := c.list(ctx, key, of.Operation, good-age); err != nil {
			return false, fmt.Errorf("store answer: %w", err)
		}
	}
	n, err := putScript.Run(ctx, c.rdb, []string{key, hiddenKey(key)}, encode(a, good, of), good, age).Int()
	if err != nil {
		return false, fmt.Errorf("store answer: %w", err)
	}
	return n == 1, nil
}

// Get returns the answer stored under key and its age, and whether there is one. Errors are Redis's, or say that what is stored there
// is not an answer of this version.
func (c *Cache) Get(ctx context.Context, key string) (Answer, bool, error) {
	a, _, ok, err := c.read(ctx, key)
	return a, ok, err
}

// found is what a read finds under a key.
type found struct {
	answer  Answer
	keepFor time.Duration // how old the answer may become there
	ok      bool
	large   bool // the answer needs a trip of its own: nothing else of it is set
	err     error
}

// Reads that come together share a trip to Redis: a third of its work and half of this process's. An answer over transfer.Small has a trip of
// its own after that, of which there are fewer at once: so it holds nobody up. 16 answers stay within transfer.Together.
const (
	maxTogether = 16
	maxTrips    = 4
	maxLarge    = 2
)

// read is Get, and tells how old the answer may become there.
func (c *Cache) read(ctx context.Context, key string) (a Answer, keepFor time.Duration, ok bool, err error) {
	f, err := c.reads.Do(ctx, key)
	if err == nil && f.large {
		f, err = c.larges.Do(ctx, key)
	}
	if err == nil {
		err = f.err
	}
	if err != nil {
		return Answer{}, 0, false, fmt.Errorf("read stored answer: %w", err)
	}
	return f.answer, f.keepFor, f.ok, nil
}

// readSmall is one trip for answers of any size, of which large ones are only found to be so.
func (c *Cache) readSmall(ctx context.Context, keys []string) ([]found, error) {
	return c.readAll(ctx, keys, func(p redis.Pipeliner, key string) *redis.StringCmd {
		return p.GetRange(ctx, key, 0, transfer.Small) // a byte more than is small
	}, func(left *redis.DurationCmd, value *redis.StringCmd) bool {
		// Nothing is what an answer has that has gone since, or what isn't one: GET tells.
		return len(value.Val()) > transfer.Small || value.Val() == "" && value.Err() == nil && left.Val() != absent
	}), nil
}

func (c *Cache) readLarge(ctx context.Context, keys []string) ([]found, error) {
	return c.readAll(ctx, keys, func(p redis.Pipeliner, key string) *redis.StringCmd { return p.Get(ctx, key) },
		func(*redis.DurationCmd, *redis.StringCmd) bool { return false }), nil
}

// readAll is one trip, which gets as much of each value as get has it. That may be too little to understand.
func (c *Cache) readAll(ctx context.Context, keys []string, get func(redis.Pipeliner, string) *redis.StringCmd,
	tooLittle func(*redis.DurationCmd, *redis.StringCmd) bool) []found {
	lefts, values := make([]*redis.DurationCmd, len(keys)), make([]*redis.StringCmd, len(keys))
	hidden := make([]*redis.StringSliceCmd, len(keys))
	_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, key := range keys {
			// In this order: an answer that is replaced between the two counts as older than it is. The other way round it would lend its youth to the one before it.
			hidden[i] = p.SMembers(ctx, hiddenKey(key)) // first: an answer that replaces another may count as hidden, never the other way round
			lefts[i], values[i] = p.PTTL(ctx, key), get(p, key)
		}
		return nil
	})
	all := make([]found, len(keys))
	for i, key := range keys {
		if all[i].large = tooLittle(lefts[i], values[i]); !all[i].large {
			all[i] = understand(key, lefts[i], values[i])
		}
		if err := hidden[i].Err(); err != nil && all[i].ok {
			all[i] = found{err: err} // nobody knows who may have it
		}
		all[i].answer.hidden = hidden[i].Val()
	}
	return all
}

// understand reads what Redis says of a key.
func understand(key string, left *redis.DurationCmd, value *redis.StringCmd) found {
	text, err := value.Bytes()
	switch {
	case errors.Is(err, redis.Nil), err == nil && left.Val() == absent: // it came after we asked
		return found{}
	case err != nil:
		return found{err: err}
	case left.Err() != nil:
		return found{err: left.Err()}
	}
	h, ok := parseHead(text)
	if !ok || left.Val() < 0 { // no TTL: somebody else's key, whose age nobody knows
		return found{err: fmt.Errorf("%s holds something else", key)}
	}
	a := Answer{Status: h.status, Body: text[h.body:], Age: h.age(left.Val())}
	a.ContentType, a.Fields = h.texts(text)
	return found{answer: a, keepFor: h.good, ok: true}
}

// absent is what PTTL says of a key that isn't there.
const absent = -2

// A value is one line of ASCII, "1 <good> <status> <n> [<owner>]\n", then n bytes of content type, and where there are Fields of a line break and these,
// then the body. 1 is the layout's version, good the ms that the answer is good for (put.lua reads it too), owner an Owner's mark.

const maxLine = 64 // bytes: more than any line takes

func encode(a Answer, good int64, of Owner) []byte {
	texts := a.ContentType
	if a.Fields != "" {
		texts += "\n" + string(a.Fields)
	}
	value := make([]byte, 0, maxLine+len(texts)+len(a.Body))
	value = fmt.Appendf(value, "1 %d %d %d %s\n", good, a.Status, len(texts), of.mark())
	value = append(value, texts...)
	return append(value, a.Body...)
}

// head is what a value's line says.
type head struct {
	good       time.Duration
	status     int
	owner      string // a mark; "": nobody's
	line, body int    // where the content type begins, and where the body does
}

// texts are what stands before the body of the value whose head h is.
func (h head) texts(value []byte) (contentType string, fields jobs.Fields) {
	contentType, rest, _ := strings.Cut(string(value[h.line:h.body]), "\n")
	return contentType, jobs.Fields(rest)
}

// age of an answer whose key has a TTL of left.
func (h head) age(left time.Duration) time.Duration {
	return max(h.good-left, 0) // under 0 where Redis's clock stepped back
}

// parseHead reads the line of a value that has at least all before its body.
func parseHead(value []byte) (h head, ok bool) {
	line, _, ok := bytes.Cut(value[:min(len(value), maxLine)], []byte{'\n'})
	fields := strings.Split(string(line), " ")
	if !ok || len(fields) < 4 || fields[0] != "1" {
		return head{}, false
	}
	good, err1 := strconv.ParseInt(fields[1], 10, 64)
	status, err2 := strconv.Atoi(fields[2])
	n, err3 := strconv.Atoi(fields[3])
	if err1 != nil || err2 != nil || err3 != nil || n < 0 || n > len(value)-len(line)-1 {
		return head{}, false
	}
	h = head{good: time.Duration(good) * time.Millisecond, status: status, line: len(line) + 1, body: len(line) + 1 + n}
	if len(fields) > 4 {
		h.owner = fields[4]
	}
	return h, true
}
