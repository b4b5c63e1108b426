package degrade

import (
	"context"
	"fmt"
	"strings"
	"time"

	"forebay/internal/cache"
	"forebay/internal/jobs"
)

// Store is where good answers are put for later; *cache.Cache and *cache.Memory are such. Put may replace what is there.
type Store interface {
	Put(ctx context.Context, key string, a cache.Answer, keepFor time.Duration, of cache.Owner) error
}

// Keeper puts by the good answers of those operations that may serve them later. Safe for concurrent use.
type Keeper struct {
	store    Store
	policies map[string]Policy
}

// NewKeeper returns a Keeper for the operations' policies, by name.
func NewKeeper(store Store, policies map[string]Policy) *Keeper {
	return &Keeper{store: store, policies: policies}
}

// Store puts by the answer that job got, under the scope of the job's own client and tier. It does nothing, and is no error, for an
// operation that never serves stored answers or that it doesn't know, and for an answer that the backend forbids to be kept for those who would get it.
func (k *Keeper) Store(ctx context.Context, job jobs.Job, meta jobs.Meta, body []byte) error {
	p := k.policies[job.Operation]
	if !p.Keeps() || !p.mayStore(meta.Storing) {
		return nil
	}
	key := p.CacheKey(job.Operation, job.Client, job.Tier, job.Payload)
	a := cache.Answer{Status: meta.Status, ContentType: meta.ContentType, Body: body}
	if err := k.store.Put(ctx, key, a, p.KeepFor(), cache.Owner{Operation: job.Operation, Client: job.Client}); err != nil {
		return fmt.Errorf("keep the answer of job %s: %w", job.ID, err)
	}
	return nil
}

// mayStore reports whether an answer may be stored of which the backend says this (jobs.Meta.Storing).
func (p Policy) mayStore(storing string) bool {
	switch storing {
	case "":
		return true
	case jobs.Private:
		return p.Share != ShareTier && p.Share != ShareAll // as Scope has it: nobody else gets it
	}
	return false
}

// Storing reads the lines of an answer's Cache-Control field (RFC 9111, section 5.2.2) into what jobs.Meta.Storing says: the narrowest
// that is there. private counts as a whole where it names fields, since an answer is stored as a whole.
func Storing(lines []string) string {
	found := ""
	for name := range directives(lines) {
		switch {
		case strings.EqualFold(name, "no-store"):
			return jobs.NoStore
		case strings.EqualFold(name, "private"):
			found = jobs.Private
		}
	}
	return found
}
