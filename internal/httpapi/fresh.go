package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/web"
)

// Reasons of a degraded answer that no limit and no line gave.
const (
	reasonSick       = "backend_sick"   // the operation serves stale answers while its backend is unwell
	reasonOnlyCached = "only_if_cached" // the request wants no other
)

// stored is what is known of the stored answer to a request. It is asked for when it is needed, and once.
type stored struct {
	wish   degrade.Wish
	asked  bool
	at     time.Time // when it was
	answer cache.Answer
	found  bool
	served bool
}

// cacheKey names the stored answer to the request, among those that its caller may see.
func (a *attempt) cacheKey() string {
	return a.o.Overload.CacheKey(a.o.Name, a.client.ID, a.client.Tier, a.payload)
}

// known is the newest good answer to the request, as old as it is now.
func (a *attempt) known(ctx context.Context) (cache.Answer, bool) {
	st := a.stored
	if !a.o.Overload.HasScope(a.client.ID) {
		return cache.Answer{}, false
	}
	if !st.asked {
		var err error
		st.asked, st.at = true, time.Now()
		if st.answer, st.found, err = a.s.Degrader.Known(ctx, a.cacheKey()); err != nil {
			a.s.Web.StoreLog.Do(func() { a.s.Web.Log.Warn("no stored answer", "request_id", a.RequestID, "error", err) })
		}
	}
	found := st.answer
	found.Age += time.Since(st.at)
	return found, st.found && !found.HiddenFrom(a.client.ID)
}

// fromStore answers what needs no new work, or must not have any: a fresh answer; a stale one, where the request wants stored answers alone or
// the backend is sick; and before those a request whose Idempotency-Key has a job. It spends no limit.
func (a *attempt) fromStore() (answered bool, err error) {
	p := a.o.Overload
	sick := p.Sick.On && a.s.sick(a.o)
	stored := p.FreshFor > 0 || sick || a.wish.OnlyIfCached
	if a.key != "" && (stored || a.s.Apart) { // the job that the key made goes before a stored answer
		if answered, err := a.recorded(); answered || err != nil {
			return answered, err
		}
	}
	switch {
	case !stored:
		return false, nil
	case a.fresh(a.Ctx):
		return true, nil
	case a.wish.OnlyIfCached:
		if a.stale(a.Ctx, reasonOnlyCached) {
			return true, nil
		}
		return true, web.Problem(http.StatusGatewayTimeout, api.CodeNotCached, "There is no stored answer to this request that may be served, and it asks for no other.")
	}
	return sick && a.stale(a.Ctx, reasonSick), nil
}

// fresh answers with a stored answer that is as good as a new one, where there is one.
func (a *attempt) fresh(ctx context.Context) bool {
	p := a.o.Overload
	if p.FreshFor == 0 || a.wish.NoCache {
		return false
	}
	found, ok := a.known(ctx)
	if !ok || !p.Fresh(found.Age, a.wish) {
		return false
	}
	if a.noRoom(found) {
		return true
	}
	a.decision, a.reason = api.Accepted, reasonFresh
	a.s.cached[a.o.Name].hit(len(found.Body))
	a.serve(found, "forebay; hit; ttl="+strconv.FormatInt(ttl(p, found.Age), 10))
	return true
}

// stale answers with the last good answer, where there is one that the policy and the request let be served.
func (a *attempt) stale(ctx context.Context, reason string) bool {
	p := a.o.Overload
	if !p.Allows(a.wish) {
		return false
	}
	found, ok := a.known(ctx)
	if !ok || !p.Serves(found.Age, a.wish) {
		return false
	}
	if a.noRoom(found) {
		return true
	}
	a.decision, a.reason = api.Degraded, reason
	a.s.cached[a.o.Name].old(len(found.Body), found.Age, time.Now())
	a.serve(found, "forebay; hit; ttl="+strconv.FormatInt(min(ttl(p, found.Age), -1), 10)+"; detail=degraded")
	return true
}

// ttl is how many seconds longer an answer counts as fresh, so that Age and it make up FreshFor. Of a stale one it is negative.
func ttl(p degrade.Policy, age time.Duration) int64 {
	return int64(p.FreshFor/time.Second) - int64(age/time.Second)
}

// noRoom takes the room that a stored answer needs until it is read. Where there is none it answers
// so, and reports true: a job instead would cost the backend what the stored answer saves.
func (a *attempt) noRoom(found cache.Answer) bool {
	err := a.reserve(found.Body, len(found.Body))
	if err != nil {
		a.Fail(err)
	}
	return err != nil
}

// serve writes a stored answer.
func (a *attempt) serve(found cache.Answer, status string) {
	a.served = true
	h := a.W.Header()
	h["Age"] = []string{strconv.FormatInt(int64(found.Age/time.Second), 10)}
	h[api.HeaderCacheStatus] = []string{status}
	h["Cache-Control"] = web.NoStore
	a.describe(found.ContentType, found.Fields)
	a.Bytes(http.StatusOK, found.ContentType, found.Body)
}

// countMiss notes a request for which a stored answer was looked for and none was served.
func (a *attempt) countMiss() {
	if a.asked && !a.served {
		a.s.cached[a.o.Name].misses.Add(1)
	}
}

// trialRest is how often a request is let through to a sick backend that a stale answer would have done for. An effective rate rises with
// calls that go well, and one of them makes up for 5 s (leaky's settle script): without these, a backend whose every request has a
// stale answer would stay sick for as long as those are served.
const trialRest = 5 * time.Second

// trials are the requests that are let through to sick backends. The zero value has none. Safe for concurrent use.
type trials struct {
	mu   sync.Mutex
	last map[string]time.Time // guarded by mu: by operation whose backend is sick, of its last trial, or since when it is
}

// due reports whether the request at hand is to be one. sick says how the operation's backend is now.
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

// sick reports whether stale answers go first, for the sake of the operation's backend.
func (s *Server) sick(o *Operation) bool {
	if s.Health == nil {
		return false
	}
	sick := s.Health.Sick(o.Backend, o.Overload.Sick.Below)
	return !s.trials.due(o.Name, sick, time.Now()) && sick
}
