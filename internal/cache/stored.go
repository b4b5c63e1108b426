package cache

import (
	"context"
	"errors"
	"time"
)

// Owner is whose request an answer was given to.
type Owner struct{ Operation, Client string }

// Holding is what is stored of one operation.
type Holding struct {
	Answers int
	Bytes   int64 // of their bodies
	Partial bool  // there are more: these were counted
}

// Entry is a stored answer as operators see it: not what it says.
type Entry struct {
	Key         string
	Age         time.Duration
	Left        time.Duration // until it is removed
	Status      int
	ContentType string
	Size        int64
}

// Filter says which answers to purge. What is given must all fit; at least one must be given.
type Filter struct {
	Operation string
	Client    string // those that were given to requests of this client, whoever shares them
	Key       string // as Key makes them
}

var errNotYet = errors.New("not yet")

// Holding counts what is stored of an operation.
func (c *Cache) Holding(ctx context.Context, operation string) (Holding, error) {
	return Holding{}, errNotYet
}

// Inspect tells of one stored answer, and whether there is one.
func (c *Cache) Inspect(ctx context.Context, key string) (Entry, bool, error) {
	return Entry{}, false, errNotYet
}

// Purge removes stored answers, in Redis at once and in the memory of every process within about a second, and returns how many it removed in Redis.
func (c *Cache) Purge(ctx context.Context, f Filter) (removed int, err error) {
	return 0, errNotYet
}
