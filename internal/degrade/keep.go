package degrade

import (
	"context"
	"fmt"
	"time"

	"forebay/internal/cache"
	"forebay/internal/jobs"
)

// Store is where good answers are put for later; *cache.Cache and *cache.Memory are such. Put may replace what is there.
type Store interface {
	Put(ctx context.Context, key string, a cache.Answer, staleFor time.Duration, of cache.Owner) error
}

// Keeper puts by the good answers of those operations that may serve them stale later. Safe for concurrent use.
type Keeper struct {
	store    Store
	policies map[string]Policy
}

// NewKeeper returns a Keeper for the operations' policies, by name.
func NewKeeper(store Store, policies map[string]Policy) *Keeper {
	return &Keeper{store: store, policies: policies}
}

// Store puts by the answer that job got, under the scope of the job's own client and tier. It does nothing for an
// operation that never serves stale answers, or that it doesn't know.
func (k *Keeper) Store(ctx context.Context, job jobs.Job, meta jobs.Meta, body []byte) error {
	p := k.policies[job.Operation]
	if !p.Allows(Wish{}) {
		return nil
	}
	if err := k.store.Put(ctx, keyOf(p, job), cache.Answer{Status: meta.Status, ContentType: meta.ContentType, Body: body}, p.StaleFor, cache.Owner{Operation: job.Operation, Client: job.Client}); err != nil {
		return fmt.Errorf("keep the answer of job %s: %w", job.ID, err)
	}
	return nil
}
