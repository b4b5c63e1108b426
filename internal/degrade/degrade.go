// Package degrade says what to answer instead of new work.
//
// A request that admission refused walks the list of steps that its operation's config gives (on_overload): stale, the last good
// answer to the same request, something simpler, or reject. Whether a stored answer may be served, as if it were new or as a stale one, is a pure
// decision on the config (Policy), the caller's wish (Wish) and the answer's age. It is permitted by config alone, and shared between
// clients only where the config says so.
//
// Which answers are stored at all is decided here too (Keeper): the backend may forbid it.
package degrade

import (
	"context"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
)

// Kind says what a Step tries.
type Kind string

const (
	Stale     Kind = "stale"     // the last good answer, where one may be served
	Operation Kind = "operation" // a job of another, cheaper operation
	Body      Kind = "body"      // a fixed answer
	Reject    Kind = "reject"    // refuse; what follows in the list is not tried
)

// Step is one thing to try, in the order of an operation's on_overload.
type Step struct {
	Kind      Kind
	Operation string // of Operation
	Body      []byte // of Body: JSON
}

// Situation is what decides which steps can come to something.
type Situation struct {
	Wish        Wish
	Unavailable bool // the store is: no operation can take a job
}

// Next returns the first step from the given place on that can come to something, and its place.
// Where there is none it is a Reject.
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

// Who shares an operation's stored answers.
const (
	ShareClient = "client" // nobody: each client sees its own
	ShareTier   = "tier"   // the clients of one tier
	ShareAll    = "all"    // everybody
)

// Policy is what an operation's config permits. The zero value permits nothing.
type Policy struct {
	Steps    []Step
	FreshFor time.Duration // how old an answer may be that is served as if it were new; 0: none is
	StaleFor time.Duration // how old an answer may be
	Share    string        // ShareClient, ShareTier or ShareAll; anything else counts as ShareClient, the narrowest
	Key      []string      // JSON Pointers to what in the payload tells answers apart; empty: the whole payload does
	Refresh  bool          // a stale answer that was served is asked for anew, once, behind the client's back
	Sick     Sick
}

// Sick says when a backend counts as sick, so that stale answers are served before the line is tried. The zero value: never.
type Sick struct {
	On    bool
	Below float64 // effective rate as a part of the configured or overridden one; a closed gate counts as sick anyway
}

// Scope is the part of a stored answer's key that keeps those apart who don't share it. Different callers who don't share never
// have the same scope.
func (p Policy) Scope(client, tier string) string {
	switch p.Share {
	case ShareAll:
		return ""
	case ShareTier:
		return "tier:" + tier
	}
	return "client:" + client
}

// Allows reports whether a stale answer of some age may be served at all. Where it is false there is none to look up.
func (p Policy) Allows(w Wish) bool {
	for _, step := range p.Steps {
		switch step.Kind {
		case Stale:
			return !w.NoCache && p.StaleFor > 0
		case Body, Reject: // what follows is never tried
			return false
		}
	}
	return false
}

// Serves reports whether an answer of the given age may be served stale: no older than StaleFor, whatever the caller says, nor than its max-age, nor
// past FreshFor by more than its max-stale.
func (p Policy) Serves(age time.Duration, w Wish) bool {
	if w.HasMaxStale && age-p.FreshFor > w.MaxStale {
		return false
	}
	return p.Allows(w) && age <= p.StaleFor && w.bears(age)
}

// Fresh reports whether an answer of the given age may be served as if it were new: no older than FreshFor, nor than the caller's max-age.
func (p Policy) Fresh(age time.Duration, w Wish) bool {
	return p.FreshFor > 0 && !w.NoCache && age <= p.FreshFor && w.bears(age)
}

// Keeps reports whether answers are worth storing: some request may get them later.
func (p Policy) Keeps() bool { return p.FreshFor > 0 || p.Allows(Wish{}) }

// KeepsFor is Keeps for a client's requests. A caller without a key has no answers of its own: strangers
// may share its address, so nothing is kept for it where Share is ShareClient.
func (p Policy) KeepsFor(client string) bool {
	return p.Keeps() && p.HasScope(client)
}

// HasScope reports whether there are requests that are known to come from those who may share a
// client's answers.
func (p Policy) HasScope(client string) bool {
	return p.Share == ShareTier || p.Share == ShareAll || !jobs.IsAnonymous(client)
}

// KeepFor is how old an answer may become that somebody may still get; 0 where Keeps is false.
func (p Policy) KeepFor() time.Duration {
	if !p.Allows(Wish{}) {
		return p.FreshFor
	}
	return max(p.FreshFor, p.StaleFor)
}

// CacheKey names the answer to a request, among those that its caller may see.
func (p Policy) CacheKey(operation, client, tier string, payload []byte) string {
	return cache.Key(operation, p.Scope(client, tier), payload, p.Key...)
}

// Known returns the newest good answer under a key of CacheKey, whatever its age: whether it may be served is the policy's to say. Its body is
// shared: it must not be written into.
func (d *Degrader) Known(ctx context.Context, key string) (cache.Answer, bool, error) {
	return d.answers.Get(ctx, key)
}

// Warm has the answer under a key, where there is one, in the memory of this process, so that it outlives the store. It may ask the store.
func (d *Degrader) Warm(ctx context.Context, key string) {
	_, _, _ = d.answers.Get(ctx, key)
}

// Purge has a client no longer get the answer under a key of p.CacheKey, where there is one: it removes an answer that is that client's
// alone, and keeps one that others share from it, until there is a younger one. On an error the client may get it still.
func (d *Degrader) Purge(ctx context.Context, p Policy, operation, key, client string) error {
	if p.Share == ShareTier || p.Share == ShareAll {
		return d.answers.Hide(ctx, key, client)
	}
	return d.answers.Forget(ctx, operation, key)
}

// Answers finds a stored answer by its key, removes it, or keeps it from one client; *cache.Cache and *cache.Memory are such. Get reports false where there is none.
type Answers interface {
	Get(ctx context.Context, key string) (cache.Answer, bool, error)
	Forget(ctx context.Context, operation, key string) error
	Hide(ctx context.Context, key, client string) error
}

// Degrader finds what to answer instead. Safe for concurrent use when its Answers is.
type Degrader struct{ answers Answers }

// New returns a Degrader that takes answers from answers. Where that is a *cache.Memory, some outlive the store.
func New(answers Answers) *Degrader { return &Degrader{answers: answers} }
