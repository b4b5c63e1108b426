// Package degrade decides which answer a request gets in place of new work.
//
// For a refused request, the steps of its operation's config (on_overload) are tried in order:
// stale, the last good answer to the same request; a fallback operation; a fixed body; or reject.
// Whether a stored answer may be served, as fresh or as stale, is a pure decision on the config
// (Policy), the caller's wish (Wish) and the answer's age. Only the config can permit it, and
// clients share answers only if the config says so.
//
// The package also decides which answers are stored (Keeper): the backend may forbid it.
package degrade

import (
	"context"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
)

// Kind names what a Step tries.
type Kind string

const (
	Stale     Kind = "stale"     // the last good answer, if it may be served
	Operation Kind = "operation" // a job of a fallback operation
	Body      Kind = "body"      // a fixed answer
	Reject    Kind = "reject"    // refuse; later steps are not tried
)

// Step is one entry of an operation's on_overload. Steps are tried in order.
type Step struct {
	Kind      Kind
	Operation string // for Operation
	Body      []byte // for Body: JSON
}

// Situation determines which steps can give an answer.
type Situation struct {
	Wish        Wish
	Unavailable bool // the store is: no operation can take a job
}

// Next returns the first step from the given index on that can give an answer, and its index, or a
// Reject if there is none.
func (p Policy) Next(from int, now Situation) (Step, int) {
	for at := from; at < len(p.Steps); at++ {
		switch step := p.Steps[at]; {
		case step.Kind == Stale && p.Allows(now.Wish):
			return step, at
		case step.Kind == Stale:
		case now.Wish.OnlyIfCached:
			return Step{Kind: Reject}, at
		case step.Kind == Operation && now.Unavailable:
		case step.Kind == Operation, step.Kind == Body, step.Kind == Reject:
			return step, at
		}
	}
	return Step{Kind: Reject}, len(p.Steps)
}

// Values of Policy.Share: the clients that share an operation's stored answers.
const (
	ShareClient = "client" // none: each client sees its own
	ShareTier   = "tier"   // the clients of one tier
	ShareAll    = "all"    // all clients
)

// Policy is what an operation's config permits. The zero value permits nothing.
type Policy struct {
	Steps    []Step
	FreshFor time.Duration // the age up to which an answer is served as fresh; 0: never
	StaleFor time.Duration // the age up to which an answer is served as stale
	Share    string        // ShareClient, ShareTier or ShareAll; other values mean ShareClient
	// JSON Pointers to the parts of the payload that distinguish answers; empty: all
	Key     []string
	Refresh bool // after a stale answer was served, one job renews it
	Sick    Sick
}

// Sick defines when a backend counts as sick, so that stale answers are served before the line is
// tried. The zero value means never.
type Sick struct {
	On bool
	// effective rate as a fraction of the set rate; a closed gate always counts as sick
	Below float64
}

// Scope returns the part of a stored answer's key that separates callers that don't share it. Two
// callers that don't share never have the same scope.
func (p Policy) Scope(client, tier string) string {
	switch p.Share {
	case ShareAll:
		return ""
	case ShareTier:
		return "tier:" + tier
	}
	return "client:" + client
}

// Allows reports whether a stale answer of any age may be served. If it returns false, there is no
// answer to look up.
func (p Policy) Allows(w Wish) bool {
	for _, step := range p.Steps {
		switch step.Kind {
		case Stale:
			return !w.NoCache && p.StaleFor > 0
		case Body, Reject: // later steps are never tried
			return false
		}
	}
	return false
}

// Serves reports whether an answer of the given age may be served as stale. The age must not exceed
// StaleFor, whatever the caller wishes, nor the caller's max-age, nor FreshFor by more than the
// caller's max-stale.
func (p Policy) Serves(age time.Duration, w Wish) bool {
	if w.HasMaxStale && age-p.FreshFor > w.MaxStale {
		return false
	}
	return p.Allows(w) && age <= p.StaleFor && w.bears(age)
}

// Fresh reports whether an answer of the given age may be served as fresh: no older than FreshFor,
// nor than the caller's max-age.
func (p Policy) Fresh(age time.Duration, w Wish) bool {
	return p.FreshFor > 0 && !w.NoCache && age <= p.FreshFor && w.bears(age)
}

// Keeps reports whether answers are worth storing: a later request may get them.
func (p Policy) Keeps() bool { return p.FreshFor > 0 || p.Allows(Wish{}) }

// KeepsFor is Keeps for a client's requests. A caller without a key has no answers of its own,
// since other callers may share its address. If Share is ShareClient, nothing is kept for it.
func (p Policy) KeepsFor(client string) bool {
	return p.Keeps() && p.HasScope(client)
}

// HasScope reports whether it is known which callers share a client's answers.
func (p Policy) HasScope(client string) bool {
	return p.Share == ShareTier || p.Share == ShareAll || !jobs.IsAnonymous(client)
}

// KeepFor returns the age up to which an answer may be served; 0 if Keeps is false.
func (p Policy) KeepFor() time.Duration {
	if !p.Allows(Wish{}) {
		return p.FreshFor
	}
	return max(p.FreshFor, p.StaleFor)
}

// CacheKey names the answer to a request, within its caller's scope.
func (p Policy) CacheKey(operation, client, tier string, payload []byte) string {
	return cache.Key(operation, p.Scope(client, tier), payload, p.Key...)
}

// Known returns the newest good answer under a key of CacheKey, whatever its age: the policy
// decides whether it may be served. Its body is shared, and must not be written to.
func (d *Degrader) Known(ctx context.Context, key string) (cache.Answer, bool, error) {
	return d.answers.Get(ctx, key)
}

// Warm loads the answer under a key, if there is one, into the memory of this process, so that it
// remains while the store is unavailable. It may read the store.
func (d *Degrader) Warm(ctx context.Context, key string) {
	_, _, _ = d.answers.Get(ctx, key)
}

// Purge stops a client from getting the answer under a key of p.CacheKey. An answer that no other
// client gets is removed. One that others share is withheld from the client until there is a
// younger one. After an error the client may still get it.
func (d *Degrader) Purge(ctx context.Context, p Policy, key, client string) error {
	if p.Share == ShareTier || p.Share == ShareAll {
		return d.answers.Hide(ctx, key, client)
	}
	return d.answers.Forget(ctx, key)
}

// Answers finds a stored answer by its key, removes it, or withholds it from one client.
// *cache.Cache and *cache.Memory implement it. Get returns false if there is none.
type Answers interface {
	Get(ctx context.Context, key string) (cache.Answer, bool, error)
	Forget(ctx context.Context, key string) error
	Hide(ctx context.Context, key, client string) error
}

// Degrader finds stored answers. It is safe for concurrent use if its Answers is.
type Degrader struct{ answers Answers }

// New returns a Degrader on answers. With a *cache.Memory, answers remain while the store is
// unavailable.
func New(answers Answers) *Degrader { return &Degrader{answers: answers} }
