package cache

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Owner names the request to which an answer was given.
type Owner struct{ Operation, Client string }

// mark returns an Owner as a stored answer carries it: digests, since a client may be an address,
// which is personal data. An answer of no operation has "".
func (o Owner) mark() string {
	if o.Operation == "" {
		return ""
	}
	return markOf(o.Operation) + markOf(o.Client)
}

// markDigits is 64 bits: among a million clients, two share a mark with a chance of 1 in 30
// million.
const markDigits = 16

func markOf(name string) string {
	digest := sha256.Sum256([]byte(name))
	return hex.EncodeToString(digest[:markDigits/2])
}

// Holding describes the stored answers of one operation.
type Holding struct {
	Answers int
	Bytes   int64 // in Redis: the bodies, and under 100 bytes more for most answers
	Partial bool  // only MaxCounted answers were counted; there are more
}

// Entry describes a stored answer to operators, without its body.
type Entry struct {
	Key         string
	Age         time.Duration
	Left        time.Duration // until it is removed
	Status      int
	ContentType string
	Size        int64 // bytes of its body
}

// Filter selects the answers to purge. All given fields must match, and at least one must be given.
type Filter struct {
	Operation string
	Client    string // answers given to requests of this client, even if other clients share them
	Key       string // as Key makes them
}

// ErrNoFilter is Purge's error for an empty Filter, which would select all answers.
var ErrNoFilter = errors.New("a purge must name an operation, a client or a key")

const (
	// MaxCounted bounds the answers that Holding counts. Redis takes some 2 ms for that many.
	MaxCounted = 5_000
	// walkStep is how many answers one round trip looks at: some 0.3 ms of Redis's time.
	walkStep = 500
	// tokenLife is how long a purge stays on record: longer than any answer lives in any memory (a
	// config's stale_for is at most 366 days).
	tokenLife = 400 * 24 * time.Hour
	// noteTime bounds the recording of a purge. The purge's own context may have ended, but what it
	// removed must be recorded.
	noteTime = time.Second
	// maxForgotten bounds the removals that are recorded one by one: 1 MB of Redis. A process that
	// has missed more (10,000 a second, from one look to the next) drops all that it remembers.
	maxForgotten = 10_000
)

// The lists' keys share a hash tag: a script writes to two of them.
const (
	listBegin     = "fb:cache:{index}:of:" // and the operation's name
	operationsKey = "fb:cache:{index}:operations"
	purgedKey     = "fb:cache:{index}:purged"        // a random text, replaced by each purge
	forgottenKey  = "fb:cache:{index}:forgotten"     // zset: keys of removed answers, by count
	countKey      = "fb:cache:{index}:forgotten:n"   // the count of removed answers
	forgottenNews = "fb:cache:{index}:forgotten:now" // a channel: each key as it is removed
)

//go:embed list.lua
var listSource string

//go:embed forget.lua
var forgetSource string

//go:embed hide.lua
var hideSource string

var listScript = redis.NewScript(listSource)
var forgetScript, hideScript = redis.NewScript(forgetSource), redis.NewScript(hideSource)

// maxHidden bounds the clients from which one answer is withheld. Once more have purged it, it is
// removed for all clients.
const maxHidden = 100

// hiddenKey holds the marks of those clients, in the answer's cluster slot.
func hiddenKey(key string) string { return key + ":hidden" }

// list records in the lists that an answer exists for the next left ms.
func (c *Cache) list(ctx context.Context, key, operation string, left int64) error {
	return listScript.Run(ctx, c.rdb, []string{listBegin + operation, operationsKey}, key,
		operation, left).Err()
}

// Holding counts the stored answers of an operation. It takes a round trip per 500 answers.
func (c *Cache) Holding(ctx context.Context, operation string) (Holding, error) {
	// Those that expire last come first: expired answers that are still in the list come last.
	keys, err := c.rdb.ZRevRange(ctx, listBegin+operation, 0, MaxCounted).Result()
	if err != nil {
		return Holding{}, fmt.Errorf("count stored answers: %w", err)
	}
	h := Holding{Partial: len(keys) > MaxCounted}
	for some := range slices.Chunk(keys[:min(len(keys), MaxCounted)], walkStep) {
		sizes, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range some {
				p.StrLen(ctx, key)
			}
			return nil
		})
		if err != nil {
			return Holding{}, fmt.Errorf("count stored answers: %w", err)
		}
		for _, size := range sizes {
			if n := size.(*redis.IntCmd).Val(); n > 0 {
				h.Answers++
				h.Bytes += n
			}
		}
	}
	return h, nil
}

// Inspect returns a description of one stored answer, and whether there is one.
func (c *Cache) Inspect(ctx context.Context, key string) (Entry, bool, error) {
	if !IsKey(key) {
		return Entry{}, false, nil
	}
	var begin *redis.StringCmd
	var size *redis.IntCmd
	var left *redis.DurationCmd
	_, err := c.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		begin, size, left = p.GetRange(ctx, key, 0, maxHead), p.StrLen(ctx, key), p.PTTL(ctx, key)
		return nil
	})
	if err != nil {
		return Entry{}, false, fmt.Errorf("inspect stored answer: %w", err)
	}
	text := begin.Val()
	if text == "" {
		return Entry{}, false, nil
	}
	h, ok := parseHead([]byte(text))
	if !ok || left.Val() < 0 {
		return Entry{}, false, fmt.Errorf("inspect stored answer: %s holds something else", key)
	}
	contentType, _ := h.texts([]byte(text))
	return Entry{Key: key, Age: h.age(left.Val()), Left: left.Val(), Status: h.status,
		ContentType: contentType, Size: size.Val() - int64(h.body)}, true, nil
}

// Purge removes stored answers, in Redis at once and in the memory of every process within about a
// second. It returns how many it removed in Redis. It continues until all are removed or ctx ends.
// After an error some may have been removed, and it may be called again. A call of the backend
// under way may store its answer afterwards.
func (c *Cache) Purge(ctx context.Context, f Filter) (removed int, err error) {
	switch {
	case f == Filter{}:
		return 0, ErrNoFilter
	case f.Key != "":
		if IsKey(f.Key) {
			removed, err = c.drop(ctx, []string{f.Key}, f)
		}
	default:
		removed, err = c.purgeLists(ctx, f)
	}
	// Last: a process that notices this and drops its copies mustn't read them from Redis again.
	note, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	err = errors.Join(err, c.rdb.Set(note, purgedKey, rand.Text(), tokenLife).Err())
	if err != nil {
		return removed, fmt.Errorf("purge stored answers: %w", err)
	}
	return removed, nil
}

// Forget removes the answer under a key of Key, and the copies in every process: most within
// milliseconds, all within about a second while they reach Redis. Errors are Redis's: the answer
// may still be there, and calling again does no harm. An answer stored meanwhile may stay.
func (c *Cache) Forget(ctx context.Context, key string) error {
	_, err := c.drop(ctx, []string{key}, Filter{})
	// Last: a process that is notified mustn't read the answer from Redis again.
	if err := errors.Join(err, c.noteForgotten(ctx, key)); err != nil {
		return fmt.Errorf("forget stored answer: %w", err)
	}
	return nil
}

// Hide withholds the answer under a key of Key, which clients share, from one of them, until a
// younger one is stored: in Redis at once, in the memory of every process as Forget does. The other
// clients still get it. Errors are Redis's: calling again does no harm.
func (c *Cache) Hide(ctx context.Context, key, client string) error {
	err := hideScript.Run(ctx, c.rdb, []string{key, hiddenKey(key)}, markOf(client),
		maxHidden).Err()
	if err := errors.Join(err, c.noteForgotten(ctx, key)); err != nil {
		return fmt.Errorf("hide stored answer: %w", err)
	}
	return nil
}

// noteForgotten makes every process drop its copy of the answer under the key.
func (c *Cache) noteForgotten(ctx context.Context, key string) error {
	return forgetScript.Run(ctx, c.rdb, []string{forgottenKey, countKey},
		key, maxForgotten, tokenLife.Milliseconds(), forgottenNews).Err()
}

// forgotten returns the keys of the answers that were removed one by one since the count was n, and
// the count now. all is true if they are no longer on record, so that any answer may have been
// removed.
func (c *Cache) forgotten(ctx context.Context, n int64) (keys []string, now int64, all bool,
	err error) {
	now, err = c.rdb.Get(ctx, countKey).Int64()
	if errors.Is(err, redis.Nil) {
		now, err = 0, nil
	}
	switch {
	case err != nil || now == n:
		return nil, now, false, err
	case now < n, now-n > maxForgotten:
		return nil, now, true, nil
	}
	keys, err = c.rdb.ZRangeByScore(ctx, forgottenKey,
		&redis.ZRangeBy{Min: "(" + strconv.FormatInt(n, 10), Max: "+inf"}).Result()
	return keys, now, false, err
}

// purgeLists walks the lists of all operations that match the filter. It keeps the entries of the
// answers that it removes: an entry is made before its answer, so one without an answer may be that
// of an answer about to be stored, which the next purge must find. Entries expire with their
// answers.
func (c *Cache) purgeLists(ctx context.Context, f Filter) (removed int, err error) {
	operations := []string{f.Operation}
	if f.Operation == "" {
		if operations, err = c.rdb.ZRange(ctx, operationsKey, 0, -1).Result(); err != nil {
			return 0, err
		}
	}
	for _, operation := range operations {
		for cursor, list := uint64(0), listBegin+operation; ; {
			var found []string // keys, each followed by its score
			found, cursor, err = c.rdb.ZScan(ctx, list, cursor, "", walkStep).Result()
			if err != nil {
				return removed, err
			}
			var keys []string
			for pair := range slices.Chunk(found, 2) {
				keys = append(keys, pair[0])
			}
			// A short list comes as a whole, and a step may be longer than requested.
			for some := range slices.Chunk(keys, walkStep) {
				n, err := c.drop(ctx, some, Filter{Client: f.Client})
				if removed += n; err != nil {
					return removed, err
				}
			}
			if cursor == 0 {
				break
			}
		}
	}
	return removed, nil
}

// drop removes the answers that match the filter's operation and client. An answer replaced between
// the look and the removal is removed too: it will be made again.
func (c *Cache) drop(ctx context.Context, keys []string, f Filter) (removed int, err error) {
	heads, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.GetRange(ctx, key, 0, maxHead)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var fit []string
	for i, key := range keys {
		if text := heads[i].(*redis.StringCmd).Val(); text != "" && f.fits([]byte(text)) {
			fit = append(fit, key)
		}
	}
	if len(fit) == 0 {
		return 0, nil
	}
	done, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range fit {
			p.Unlink(ctx, key)
		}
		return nil
	})
	for _, one := range done {
		removed += int(one.(*redis.IntCmd).Val())
	}
	return removed, err
}

// fits reports whether a value with this beginning matches the filter's operation and client. A
// value that isn't an answer matches no name.
func (f Filter) fits(value []byte) bool {
	h, _ := parseHead(value)
	return (f.Operation == "" || strings.HasPrefix(h.owner, markOf(f.Operation))) &&
		(f.Client == "" || len(h.owner) == 2*markDigits &&
			strings.HasSuffix(h.owner, markOf(f.Client)))
}

// purged returns the text that each purge replaces; "" before the first.
func (c *Cache) purged(ctx context.Context) (string, error) {
	text, err := c.rdb.Get(ctx, purgedKey).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return text, err
}
