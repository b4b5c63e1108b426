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

// Store keeps good answers for later; *cache.Cache and *cache.Memory implement it. Put may replace
// an answer. Forget removes one, here and from the memory of other processes.
type Store interface {
	Put(ctx context.Context, key string, a cache.Answer, keepFor time.Duration,
		of cache.Owner) error
	Forget(ctx context.Context, key string) error
}

// Keeper stores the good answers of operations that may serve them later. It is safe for concurrent
// use.
type Keeper struct {
	store    Store
	policies map[string]Policy
}

// NewKeeper returns a Keeper for the operations' policies, by name.
func NewKeeper(store Store, policies map[string]Policy) *Keeper {
	return &Keeper{store: store, policies: policies}
}

// Learn stores or removes the answer to job's request, given the backend's final answer to it, in
// the scope of the job's client and tier. A good answer is stored, unless the request forbids that.
// If the backend forbids storing it for the callers that would get it, the older answer is removed
// instead. A definite refusal removes it too: the resource is gone, or must not be seen. Other
// answers change nothing, since they may be temporary. For an unknown operation, or one that never
// serves stored answers, Learn does nothing and returns nil. After an error, calling again does no
// harm.
func (k *Keeper) Learn(ctx context.Context, job jobs.Job, meta jobs.Meta, body []byte) error {
	p := k.policies[job.Operation]
	good := meta.Status >= 200 && meta.Status <= 299
	if !p.KeepsFor(job.Client) || !good && !definite(meta.Status) {
		return nil
	}
	key := p.CacheKey(job.Operation, job.Client, job.Tier, job.Payload)
	if !good || !p.mayStore(meta.Storing) {
		if err := k.store.Forget(ctx, key); err != nil {
			return fmt.Errorf("remove the answer that job %s disproves: %w", job.ID, err)
		}
		return nil
	}
	if job.NoStore {
		return nil
	}
	a := cache.Answer{Status: meta.Status, ContentType: meta.ContentType, Fields: meta.Fields,
		Body: body}
	owner := cache.Owner{Operation: job.Operation, Client: job.Client}
	if err := k.store.Put(ctx, key, a, p.KeepFor(), owner); err != nil {
		return fmt.Errorf("keep the answer of job %s: %w", job.ID, err)
	}
	return nil
}

// definite reports whether an answer with the status proves that the previous one no longer holds.
func definite(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone,
		http.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

// mayStore reports whether an answer may be stored, given the backend's word on storing
// (jobs.Meta.Storing).
func (p Policy) mayStore(storing string) bool {
	switch storing {
	case "":
		return true
	case jobs.Private:
		// As in Scope: no other client gets it. For callers without a key, which may share an
		// address, nothing is kept at all (KeepsFor).
		return p.Share != ShareTier && p.Share != ShareAll
	}
	return false
}

// Storing reduces the lines of an answer's Cache-Control field (RFC 9111, section 5.2.2) to a value
// of jobs.Meta.Storing, the strictest one given. A private that names fields counts for the whole
// answer, since an answer is stored as a whole.
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
