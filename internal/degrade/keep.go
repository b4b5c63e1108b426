package degrade

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
)

// Store is where good answers are put for later; *cache.Cache and *cache.Memory are such. Put may replace what is there, Forget
// removes it, here and from what other processes remember.
type Store interface {
	Put(ctx context.Context, key string, a cache.Answer, keepFor time.Duration, of cache.Owner) error
	Forget(ctx context.Context, operation, key string) error
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

// Learn takes in what the backend answered job with at its end, under the scope of the job's own client and tier. A good answer is put by;
// one that the backend forbids to be kept for those who would get it removes the older one instead, and so does a definite refusal: the
// thing is gone, or not to be seen. Other answers leave what is stored alone: trouble passes; and so does
// a good one to a request that forbids to store it. It does nothing, and is no error, for an operation that never serves
// stored answers or that it doesn't know. On an error, calling again does no harm.
func (k *Keeper) Learn(ctx context.Context, job jobs.Job, meta jobs.Meta, body []byte) error {
	p := k.policies[job.Operation]
	good := meta.Status >= 200 && meta.Status <= 299
	if !p.KeepsFor(job.Client) || !good && !definite(meta.Status) {
		return nil
	}
	key := p.CacheKey(job.Operation, job.Client, job.Tier, job.Payload)
	if !good || !p.mayStore(meta.Storing) {
		if err := k.store.Forget(ctx, job.Operation, key); err != nil {
			return fmt.Errorf("remove the answer that job %s disproves: %w", job.ID, err)
		}
		return nil
	}
	if job.NoStore {
		return nil
	}
	a := cache.Answer{Status: meta.Status, ContentType: meta.ContentType, Fields: meta.Fields, Body: body}
	if err := k.store.Put(ctx, key, a, p.KeepFor(), cache.Owner{Operation: job.Operation, Client: job.Client}); err != nil {
		return fmt.Errorf("keep the answer of job %s: %w", job.ID, err)
	}
	return nil
}

// definite reports whether an answer of a status says for certain that the one before it no longer holds.
func definite(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone, http.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

// mayStore reports whether an answer may be stored of which the backend says this (jobs.Meta.Storing).
func (p Policy) mayStore(storing string) bool {
	switch storing {
	case "":
		return true
	case jobs.Private:
		// As Scope has it: nobody else gets it. Of callers without a key, who may share an address, nothing is kept there (KeepsFor).
		return p.Share != ShareTier && p.Share != ShareAll
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
