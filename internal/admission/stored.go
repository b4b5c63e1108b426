package admission

import (
	"context"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/cache"
)

// stored is the stored answer to a request, if there is one. It is looked up once, when it is
// needed.
type stored struct {
	key    string // of the answer, once computed
	asked  bool
	at     time.Time // when it was looked for
	answer cache.Answer
	found  bool
}

// cacheKey names the stored answer to the request, among those that its caller may see.
func (s *submission) cacheKey() string {
	if s.stored.key == "" {
		s.stored.key = s.operation.Overload.CacheKey(s.operation.Name, s.req.Caller.ID,
			s.req.Caller.Tier, s.req.Payload)
	}
	return s.stored.key
}

// newest returns the newest good answer to the request, with its present age.
func (s *submission) newest(ctx context.Context) (cache.Answer, bool) {
	st := s.stored
	if !s.operation.Overload.HasScope(s.req.Caller.ID) {
		return cache.Answer{}, false
	}
	if !st.asked {
		var err error
		st.asked, st.at = true, time.Now()
		if st.answer, st.found, err = s.Answers.Known(ctx, s.cacheKey()); err != nil {
			s.storeLog.Do(func() {
				s.Log.Warn("no stored answer", "request_id", s.req.ID, "error", err)
			})
		}
	}
	found := st.answer
	found.Age += time.Since(st.at)
	return found, st.found && !found.HiddenFrom(s.req.Caller.ID)
}

// known returns the outcome of a request that needs no new work, or must not cause any: a fresh
// answer, or a stale one if the request accepts stored answers only or the backend is sick. It
// first answers a duplicate request with its job. It spends nothing.
func (s *submission) known() (Outcome, *refusal) {
	p := s.operation.Overload
	sick := p.Sick.On && s.sick(s.operation)
	serves := p.FreshFor > 0 || sick || s.req.Wish.OnlyIfCached
	if s.req.Key != "" && (serves || s.Cluster) { // otherwise the step that admits finds the job
		if o, refused := s.recorded(); o != nil || refused != nil {
			return o, refused
		}
	}
	if !serves {
		return nil, nil
	}
	if o := s.fresh(s.ctx); o != nil {
		return o, nil
	}
	switch {
	case s.req.Wish.OnlyIfCached:
		if o := s.stale(s.ctx, ReasonOnlyCached); o != nil {
			return o, nil
		}
		return nil, s.refused(ByNoAnswer)
	case sick:
		return s.stale(s.ctx, ReasonSick), nil
	}
	return nil, nil
}

// fresh returns a stored answer that is as good as a new one, or nil.
func (s *submission) fresh(ctx context.Context) Outcome {
	p := s.operation.Overload
	if p.FreshFor == 0 || s.req.Wish.NoCache {
		return nil
	}
	found, ok := s.newest(ctx)
	if !ok || !p.Fresh(found.Age, s.req.Wish) {
		return nil
	}
	return &Stored{Terms: s.terms(ReasonFresh), Answer: found, Fresh: true, FreshFor: p.FreshFor}
}

// stale returns the last good answer, if there is one and both the policy and the request allow it;
// otherwise nil.
func (s *submission) stale(ctx context.Context, reason string) Outcome {
	p := s.operation.Overload
	if !p.Allows(s.req.Wish) {
		return nil
	}
	found, ok := s.newest(ctx)
	if !ok || !p.Serves(found.Age, s.req.Wish) {
		return nil
	}
	return &Stored{Terms: s.terms(reason), Answer: found, FreshFor: p.FreshFor}
}

// trialRest is how often a request goes to a sick backend although there is a stale answer. An
// effective rate rises with successful calls, and one call counts for up to 5 s (leaky's settle
// script). Without such requests, a backend whose every request has a stale answer would stay sick
// for as long as those are served.
const trialRest = 5 * time.Second

// trials are the requests that go to sick backends. The zero value has none. Safe for concurrent
// use.
type trials struct {
	mu   sync.Mutex
	last map[string]time.Time // guarded by mu; by operation: its last trial, or when it became sick
}

// due reports whether a request for the operation is to be a trial, given whether its backend is
// sick.
func (t *trials) due(operation string, sick bool, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, was := t.last[operation]
	switch {
	case !sick:
		delete(t.last, operation)
		return false
	case was && now.Sub(last) < trialRest:
		return false
	}
	if t.last == nil {
		t.last = make(map[string]time.Time)
	}
	t.last[operation] = now
	return was
}

// sick reports whether stale answers are served first because the operation's backend is sick.
func (a *Admission) sick(o *Operation) bool {
	if a.Health == nil {
		return false
	}
	sick := a.Health.Sick(o.Backend, o.Overload.Sick.Below)
	return !a.trials.due(o.Name, sick, time.Now()) && sick
}
