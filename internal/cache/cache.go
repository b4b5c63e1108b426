// Package cache holds the last good answer of the backend to each request. Cache keeps the answers
// in Redis. Memory is in front of Redis and keeps the answers that passed through the process: it
// spares Redis repeated reads, and serves answers while Redis is unavailable.
//
// One key holds one answer. Its TTL is as long as the operation's config lets the answer be served,
// so the cache needs no sweeping, and its size is bounded by the answers of that time. Operators
// find answers by lists (stored.go), which expire too. Ages come from Redis's clock alone (the time
// for which the answer is good, less the remaining TTL), because host clocks may differ or step. In
// memory, an answer ages by the process's monotonic clock, from the age that it had when it was
// read.
//
// Only good answers (2xx) are stored. A backend that fails for a moment can't leave its error page
// behind to be served once it has recovered.
//
// The youngest answer wins. A job may be called twice, and jobs with one payload may end in any
// order. All such answers are good, and Put never replaces one by an older one, provided that its
// callers give the right ages.
//
// # Memory before Redis
//
// An answer in memory is used for a second without asking Redis. So a popular answer is read from
// Redis once a second per process, and concurrent reads share one call. If there is no answer in
// memory, Redis is asked each time, so that a client that sees its job done finds the answer: the
// worker stores it before it settles the job.
//
// # Lists and purges
//
// Lists of stored answers are for operators alone. There is one per operation, written before the
// answer, so that no answer escapes a purge. A purge changes a marker that every process reads once
// a second, since messages can be missed. The removal of a single answer is published as a message,
// and noted in a bounded log that is read with the marker.
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

// Answer is the backend's answer to a request.
type Answer struct {
	Status      int           // 200 to 299
	ContentType string        // "" if the backend sent none
	Fields      jobs.Fields   // other fields that describe the body
	Body        []byte        // byte for byte
	Age         time.Duration // since the backend gave it, in milliseconds, by Redis's clock

	hidden []string // marks of the clients that don't get it
}

// HiddenFrom reports whether the answer is withheld from a client that purged it (Hide).
func (a Answer) HiddenFrom(client string) bool { return slices.Contains(a.hidden, markOf(client)) }

const (
	// MaxBody bounds a stored body. It is as large as the config lets a result be (max_result).
	// Redis sends it in some 50 ms on one host, well within the 1 s that a degraded answer may
	// take.
	MaxBody = 64 << 20
	// MaxContentType bounds a stored content type: real ones are under 100 bytes.
	MaxContentType = 1 << 10
	// maxHead bounds the bytes before a body.
	maxHead = maxLine + MaxContentType + 1 + jobs.MaxFields
)

// Errors of Put: the answer was not stored.
var (
	ErrNotGood  = errors.New("only answers with status 200 to 299 are stored")
	ErrTooLarge = fmt.Errorf("answers over %d bytes, or with a content type over %d, "+
		"are not stored", MaxBody, MaxContentType)
)

// Cache reads and writes stored answers. Safe for concurrent use.
type Cache struct {
	rdb    redis.UniversalClient
	reads  *groupcommit.Collector[string, found] // small answers, and the start of large ones
	larges *groupcommit.Collector[string, found] // large answers, whole
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

// check returns ErrNotGood or ErrTooLarge if a must not be stored.
func (a Answer) check() error {
	if a.Status < 200 || a.Status > 299 {
		return fmt.Errorf("status %d: %w", a.Status, ErrNotGood)
	}
	if len(a.Body) > MaxBody || len(a.ContentType) > MaxContentType ||
		len(a.Fields) > jobs.MaxFields {
		return ErrTooLarge
	}
	return nil
}

// Put stores a under key until it is keepFor old, as an answer to a request of the given owner.
// a.Age is its age now. An answer that has reached keepFor, or that is older than the stored one,
// is dropped without an error. Errors are ErrNotGood and ErrTooLarge (nothing was stored), or
// Redis's: the answer may have been stored, and calling again does no harm. An answer with no
// operation is in no list: operators find it by its key alone.
func (c *Cache) Put(ctx context.Context, key string, a Answer, keepFor time.Duration,
	of Owner) error {
	_, err := c.put(ctx, key, a, keepFor, of)
	return err
}

// put is Put, and reports whether a is the answer that is stored now.
func (c *Cache) put(ctx context.Context, key string, a Answer, keepFor time.Duration,
	of Owner) (stored bool, err error) {
	if err := a.check(); err != nil {
		return false, fmt.Errorf("store answer: %w", err)
	}
	good, age := keepFor.Milliseconds(), max(a.Age, 0).Milliseconds()
	if age >= good {
		return false, nil
	}
	if of.Operation != "" { // listed first: an answer in no list would escape a purge
		if err := c.list(ctx, key, of.Operation, good-age); err != nil {
			return false, fmt.Errorf("store answer: %w", err)
		}
	}
	n, err := putScript.Run(ctx, c.rdb, []string{key, hiddenKey(key)}, encode(a, good, of), good,
		age).Int()
	if err != nil {
		return false, fmt.Errorf("store answer: %w", err)
	}
	return n == 1, nil
}

// Get returns the answer stored under key with its age, and whether there is one. Errors are
// Redis's, or report that the stored value is not an answer of this version.
func (c *Cache) Get(ctx context.Context, key string) (Answer, bool, error) {
	a, _, ok, err := c.read(ctx, key)
	return a, ok, err
}

// found is the result of a read of one key.
type found struct {
	answer  Answer
	keepFor time.Duration // the age at which the answer expires
	ok      bool
	large   bool // the answer needs a round trip of its own: the rest is unset
	err     error
}

// Concurrent reads share a round trip to Redis, which takes a third of its work and half of this
// process's. An answer over transfer.Small takes a round trip of its own after that. Fewer of those
// run at once, so large answers don't delay small ones. 16 answers stay within transfer.Together.
const (
	maxTogether = 16
	maxTrips    = 4
	maxLarge    = 2
)

// read is Get, and returns the age at which the answer expires.
func (c *Cache) read(ctx context.Context, key string) (a Answer, keepFor time.Duration, ok bool,
	err error) {
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

// readSmall is one round trip for answers of any size. It only detects large ones.
func (c *Cache) readSmall(ctx context.Context, keys []string) ([]found, error) {
	return c.readAll(ctx, keys, func(p redis.Pipeliner, key string) *redis.StringCmd {
		return p.GetRange(ctx, key, 0, transfer.Small) // a byte more than is small
	}, func(left *redis.DurationCmd, value *redis.StringCmd) bool {
		// An empty value means that the answer has expired since, or that the key isn't an answer.
		// GET distinguishes them.
		return len(value.Val()) > transfer.Small ||
			value.Val() == "" && value.Err() == nil && left.Val() != absent
	}), nil
}

func (c *Cache) readLarge(ctx context.Context, keys []string) ([]found, error) {
	return c.readAll(ctx, keys, func(p redis.Pipeliner, key string) *redis.StringCmd {
		return p.Get(ctx, key)
	}, func(*redis.DurationCmd, *redis.StringCmd) bool { return false }), nil
}

// readAll is one round trip, which reads as much of each value as get does. tooLittle reports
// whether that isn't enough.
func (c *Cache) readAll(ctx context.Context, keys []string,
	get func(redis.Pipeliner, string) *redis.StringCmd,
	tooLittle func(*redis.DurationCmd, *redis.StringCmd) bool) []found {
	lefts, values := make([]*redis.DurationCmd, len(keys)), make([]*redis.StringCmd, len(keys))
	hidden := make([]*redis.StringSliceCmd, len(keys))
	_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, key := range keys {
			// The order matters. If another answer replaces this one between PTTL and the read, the
			// new one counts as older than it is; in the other order, the old one would count as
			// younger. Since the set is read first, a new answer may count as hidden, but a hidden
			// one never as visible.
			hidden[i] = p.SMembers(ctx, hiddenKey(key))
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
			all[i] = found{err: err} // it is unknown which clients may get it
		}
		all[i].answer.hidden = hidden[i].Val()
	}
	return all
}

// understand interprets Redis's replies about a key.
func understand(key string, left *redis.DurationCmd, value *redis.StringCmd) found {
	text, err := value.Bytes()
	switch {
	case errors.Is(err, redis.Nil), err == nil && left.Val() == absent: // stored after PTTL ran
		return found{}
	case err != nil:
		return found{err: err}
	case left.Err() != nil:
		return found{err: left.Err()}
	}
	h, ok := parseHead(text)
	if !ok || left.Val() < 0 { // no TTL: a foreign key, whose age is unknown
		return found{err: fmt.Errorf("%s holds something else", key)}
	}
	a := Answer{Status: h.status, Body: text[h.body:], Age: h.age(left.Val())}
	a.ContentType, a.Fields = h.texts(text)
	return found{answer: a, keepFor: h.good, ok: true}
}

// absent is PTTL's reply for a missing key.
const absent = -2

// A value is one line of ASCII, "1 <good> <status> <n> [<owner>]\n", then n bytes of content type
// (followed by a line break and the Fields, if there are any), then the body. 1 is the layout's
// version, good the ms for which the answer is good (put.lua reads it too), owner an Owner's mark.

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

// head is the content of a value's first line.
type head struct {
	good       time.Duration
	status     int
	owner      string // a mark; "" if unowned
	line, body int    // offsets of the content type and of the body
}

// texts returns the content type and the fields of a value whose head is h.
func (h head) texts(value []byte) (contentType string, fields jobs.Fields) {
	contentType, rest, _ := strings.Cut(string(value[h.line:h.body]), "\n")
	return contentType, jobs.Fields(rest)
}

// age returns the age of an answer whose key has a remaining TTL of left.
func (h head) age(left time.Duration) time.Duration {
	return max(h.good-left, 0) // negative if Redis's clock stepped back
}

// parseHead parses the first line of a value. The value must hold at least everything before the
// body.
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
	h = head{good: time.Duration(good) * time.Millisecond, status: status,
		line: len(line) + 1, body: len(line) + 1 + n}
	if len(fields) > 4 {
		h.owner = fields[4]
	}
	return h, true
}
