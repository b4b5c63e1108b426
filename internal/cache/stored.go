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

// Owner is whose request an answer was given to.
type Owner struct{ Operation, Client string }

// mark is an Owner as a stored answer carries it: digests, since a client may be an address, which is personal. "" for the answer of no operation.
func (o Owner) mark() string {
	if o.Operation == "" {
		return ""
	}
	return markOf(o.Operation) + markOf(o.Client)
}

const markDigits = 16 // 64 bits: among a million clients two share one with a chance of 1 in 30 million

func markOf(name string) string {
	digest := sha256.Sum256([]byte(name))
	return hex.EncodeToString(digest[:markDigits/2])
}

// Holding is what is stored of one operation.
type Holding struct {
	Answers int
	Bytes   int64 // in Redis: the bodies, and under 100 bytes more for most
	Partial bool  // there are more: MaxCounted of them were counted
}

// Entry is a stored answer as operators see it: not what it says.
type Entry struct {
	Key         string
	Age         time.Duration
	Left        time.Duration // until it is removed
	Status      int
	ContentType string
	Size        int64 // bytes of its body
}

// Filter says which answers to purge. What is given must all fit; at least one must be given.
type Filter struct {
	Operation string
	Client    string // those that were given to requests of this client, whoever shares them
	Key       string // as Key makes them
}

// ErrNoFilter is what Purge says to a Filter that would mean everything.
var ErrNoFilter = errors.New("a purge must name an operation, a client or a key")

const (
	// MaxCounted bounds the answers that Holding counts. Redis takes some 2 ms for them.
	MaxCounted = 5_000
	// walkStep is how many answers one round trip looks at: some 0.3 ms of Redis's time.
	walkStep = 500
	// tokenLife is how long a purge is told of: longer than any answer lives (a config's stale_for is at most 366 days), in whatever memory.
	tokenLife = 400 * 24 * time.Hour
	// tellTime bounds the telling, which goes on when the purge itself was cut short: what it did must be known.
	tellTime = time.Second
	// maxForgotten bounds the removals that are told of one by one: 1 MB of Redis. A process that has missed more (at 10,000 a
	// second it would, from one look to the next) drops all that it remembers.
	maxForgotten = 10_000
)

// The lists' keys share a hash tag: a script writes to two of them.
const (
	listBegin     = "fb:cache:{index}:of:" // and the operation's name
	operationsKey = "fb:cache:{index}:operations"
	purgedKey     = "fb:cache:{index}:purged"        // a random text, another one after each purge
	forgottenKey  = "fb:cache:{index}:forgotten"     // zset: keys of single answers that were removed, by forgottenCount at that
	countKey      = "fb:cache:{index}:forgotten:n"   // how many were
	forgottenNews = "fb:cache:{index}:forgotten:now" // a channel: each key as it is removed
)

//go:embed list.lua
var listSource string

//go:embed unlist.lua
var unlistSource string

//go:embed forget.lua
var forgetSource string

//go:embed hide.lua
var hideSource string

var listScript, unlistScript = redis.NewScript(listSource), redis.NewScript(unlistSource)
var forgetScript, hideScript = redis.NewScript(forgetSource), redis.NewScript(hideSource)

// maxHidden bounds the clients from whom one answer is kept; where more have purged it, it is removed for all.
const maxHidden = 100

// hiddenKey is where the marks of those clients are: in the answer's cluster slot.
func hiddenKey(key string) string { return key + ":hidden" }

// list notes in the lists that an answer is there for some ms to come.
func (c *Cache) list(ctx context.Context, key, operation string, left int64) error {
	return listScript.Run(ctx, c.rdb, []string{listBegin + operation, operationsKey}, key, operation, left).Err()
}

// Holding counts what is stored of an operation. It takes a round trip for each 500 answers.
func (c *Cache) Holding(ctx context.Context, operation string) (Holding, error) {
	// Those that will be there longest first: what is gone and still in the list comes last.
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

// Inspect tells of one stored answer, and whether there is one.
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
	return Entry{Key: key, Age: h.age(left.Val()), Left: left.Val(), Status: h.status, ContentType: contentType,
		Size: size.Val() - int64(h.body)}, true, nil
}

// Purge removes stored answers, in Redis at once and in the memory of every process within about a second, and returns how many it removed in
// Redis. It goes on until all are gone or ctx ends; on an error some may be gone, and it may be called again. A call of the backend that is under
// way meanwhile may store its answer afterwards.
func (c *Cache) Purge(ctx context.Context, f Filter) (removed int, err error) {
	switch {
	case f == Filter{}:
		return 0, ErrNoFilter
	case f.Key != "":
		if IsKey(f.Key) {
			removed, _, err = c.drop(ctx, []string{f.Key}, f)
		}
	default:
		removed, err = c.purgeLists(ctx, f)
	}
	// Last: who reads this and drops what it remembers mustn't read it again from Redis.
	tell, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	if err := errors.Join(err, c.rdb.Set(tell, purgedKey, rand.Text(), tokenLife).Err()); err != nil {
		return removed, fmt.Errorf("purge stored answers: %w", err)
	}
	return removed, nil
}

// Forget removes the one answer under a key of Key, its line in the list of the operation that it was stored for, and what every
// process remembers of it: most within milliseconds, each within about a second while it reaches Redis. Errors are Redis's: it may be
// there still, and calling again does no harm. An answer that is stored meanwhile may stay.
func (c *Cache) Forget(ctx context.Context, operation, key string) error {
	list := listBegin + operation
	score, err := c.rdb.ZScore(ctx, list, key).Result()
	switch {
	case errors.Is(err, redis.Nil):
		_, _, err = c.drop(ctx, []string{key}, Filter{})
	case err == nil:
		_, err = c.purgeListed(ctx, list, []string{key, strconv.FormatFloat(score, 'f', -1, 64)}, Filter{})
	}
	// Last: a process that hears of it mustn't read it again from Redis.
	if err := errors.Join(err, c.tellForgotten(ctx, key)); err != nil {
		return fmt.Errorf("forget stored answer: %w", err)
	}
	return nil
}

// Hide keeps the answer under a key of Key, which clients share, from one of them, until a younger one is stored: in Redis at once, in the
// memory of every process as Forget does. The others go on getting it. Errors are Redis's: calling again does no harm.
func (c *Cache) Hide(ctx context.Context, key, client string) error {
	err := hideScript.Run(ctx, c.rdb, []string{key, hiddenKey(key)}, markOf(client), maxHidden).Err()
	if err := errors.Join(err, c.tellForgotten(ctx, key)); err != nil {
		return fmt.Errorf("hide stored answer: %w", err)
	}
	return nil
}

// tellForgotten has every process drop what it remembers under the key.
func (c *Cache) tellForgotten(ctx context.Context, key string) error {
	return forgetScript.Run(ctx, c.rdb, []string{forgottenKey, countKey}, key, maxForgotten, tokenLife.Milliseconds(), forgottenNews).Err()
}

// forgotten are the keys of the answers that were removed one by one since there had been n of them, and how many there are by now. all: it
// can't be said any more.
func (c *Cache) forgotten(ctx context.Context, n int64) (keys []string, now int64, all bool, err error) {
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
	keys, err = c.rdb.ZRangeByScore(ctx, forgottenKey, &redis.ZRangeBy{Min: "(" + strconv.FormatInt(n, 10), Max: "+inf"}).Result()
	return keys, now, false, err
}

// purgeLists goes through the lists of all operations that the filter means.
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
			if found, cursor, err = c.rdb.ZScan(ctx, list, cursor, "", walkStep).Result(); err != nil {
				return removed, err
			}
			for some := range slices.Chunk(found, 2*walkStep) { // a short list comes as a whole, and a step may be longer than asked for
				n, err := c.purgeListed(ctx, list, some, Filter{Client: f.Client})
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

// purgeListed drops the answers that are told by their keys, each followed by its score, where they fit.
func (c *Cache) purgeListed(ctx context.Context, list string, found []string, f Filter) (removed int, err error) {
	var keys []string
	scores := map[string]string{}
	for pair := range slices.Chunk(found, 2) {
		keys = append(keys, pair[0])
		scores[pair[0]] = pair[1]
	}
	removed, gone, err := c.drop(ctx, keys, f)
	if err != nil || len(gone) == 0 {
		return removed, err
	}
	var args []any
	for _, key := range gone {
		args = append(args, key, scores[key])
	}
	return removed, unlistScript.Run(ctx, c.rdb, []string{list}, args...).Err()
}

// drop removes those of the answers that have the filter's operation and client, and tells which are gone, by this or before. An answer that is
// replaced between look and removal goes too: it is one that will be made again.
func (c *Cache) drop(ctx context.Context, keys []string, f Filter) (removed int, gone []string, err error) {
	heads, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.GetRange(ctx, key, 0, maxHead)
		}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	var fit []string
	for i, key := range keys {
		switch text := heads[i].(*redis.StringCmd).Val(); {
		case text == "":
			gone = append(gone, key)
		case f.fits([]byte(text)):
			fit = append(fit, key)
		}
	}
	if len(fit) == 0 {
		return 0, gone, nil
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
	return removed, append(gone, fit...), err
}

// fits reports whether the value that begins so is of the filter's operation and client. What is no answer fits no name.
func (f Filter) fits(value []byte) bool {
	h, _ := parseHead(value)
	return (f.Operation == "" || strings.HasPrefix(h.owner, markOf(f.Operation))) &&
		(f.Client == "" || len(h.owner) == 2*markDigits && strings.HasSuffix(h.owner, markOf(f.Client)))
}

// purged is the text that each purge changes; "" before the first.
func (c *Cache) purged(ctx context.Context) (string, error) {
	text, err := c.rdb.Get(ctx, purgedKey).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return text, err
}
