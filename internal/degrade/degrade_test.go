package degrade_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

func TestTheStepsAreTakenInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps []degrade.Step
		want  bool
	}{
		{"stale, then reject", []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}}, true},
		{"stale alone", []degrade.Step{{Kind: degrade.Stale}}, true},
		{"reject alone", []degrade.Step{{Kind: degrade.Reject}}, false},
		{"stale comes too late",
			[]degrade.Step{{Kind: degrade.Reject}, {Kind: degrade.Stale}}, false},
		{"none", nil, false},
		{"a word of a later version", []degrade.Step{{Kind: "other"}, {Kind: degrade.Stale}}, true},
		{"another operation, then stale",
			[]degrade.Step{{Kind: degrade.Operation, Operation: "summary"}, {Kind: degrade.Stale}},
			true},
		{"a fixed body always answers",
			[]degrade.Step{{Kind: degrade.Body, Body: []byte("{}")}, {Kind: degrade.Stale}}, false},
	} {
		p := degrade.Policy{Steps: c.steps, StaleFor: time.Hour}
		if got := p.Allows(degrade.Wish{}); got != c.want {
			t.Errorf("%s: allows %v, want %v", c.name, got, c.want)
		}
		if got := p.Serves(time.Minute, degrade.Wish{}); got != c.want {
			t.Errorf("%s: serves %v, want %v", c.name, got, c.want)
		}
	}
}

// Case C114: an answer is served within max-stale, and not one second beyond it.
func TestAnAnswerIsServedWithinItsBoundsAndNotBeyond(t *testing.T) {
	t.Parallel()
	hour := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}}, StaleFor: time.Hour}
	never := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}}}
	fresh := degrade.Policy{Steps: hour.Steps, StaleFor: time.Hour, FreshFor: 10 * time.Minute}
	max := func(d time.Duration) degrade.Wish {
		return degrade.Wish{MaxStale: d, HasMaxStale: true}
	}
	young := func(d time.Duration) degrade.Wish { return degrade.Wish{MaxAge: d, HasMaxAge: true} }
	for _, c := range []struct {
		name   string
		policy degrade.Policy
		age    time.Duration
		wish   degrade.Wish
		want   bool
	}{
		{"fresh", hour, 0, degrade.Wish{}, true},
		{"at stale_for", hour, time.Hour, degrade.Wish{}, true},
		{"a second beyond stale_for", hour, time.Hour + time.Second, degrade.Wish{}, false},
		{"a millisecond beyond", hour, time.Hour + time.Millisecond, degrade.Wish{}, false},
		{"at max-stale", hour, time.Minute, max(time.Minute), true},
		{"a second beyond max-stale", hour, time.Minute + time.Second, max(time.Minute), false},
		{"max-stale=0", hour, time.Millisecond, max(0), false},
		{"max-stale doesn't widen stale_for", hour, time.Hour + time.Second,
			max(24 * time.Hour), false},
		{"max-stale counts from the end of freshness", fresh, 11 * time.Minute,
			max(time.Minute), true},
		{"and a second beyond", fresh, 11*time.Minute + time.Second, max(time.Minute), false},
		{"max-stale=0 of a fresh one", fresh, 10 * time.Minute, max(0), true},
		{"at max-age", hour, time.Minute, young(time.Minute), true},
		{"a second beyond max-age", hour, time.Minute + time.Second, young(time.Minute), false},
		{"max-age doesn't widen stale_for", hour, time.Hour + time.Second,
			young(24 * time.Hour), false},
		{"beyond max-age, within max-stale", fresh, 5 * time.Minute,
			degrade.Wish{MaxAge: time.Minute, HasMaxAge: true, MaxStale: time.Hour,
				HasMaxStale: true}, false},
		{"within max-age, beyond max-stale", fresh, 30 * time.Minute,
			degrade.Wish{MaxAge: time.Hour, HasMaxAge: true, MaxStale: time.Minute,
				HasMaxStale: true}, false},
		{"only-if-cached", hour, time.Minute, degrade.Wish{OnlyIfCached: true}, true},
		{"no-cache", hour, 0, degrade.Wish{NoCache: true}, false},
		{"no-cache beats max-stale", hour, 0,
			degrade.Wish{NoCache: true, MaxStale: time.Hour, HasMaxStale: true}, false},
		{"no stale_for", never, 0, degrade.Wish{}, false},
		{"the zero policy", degrade.Policy{}, 0, degrade.Wish{}, false},
	} {
		if got := c.policy.Serves(c.age, c.wish); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAnAnswerIsFreshForAsLongAsTheConfigSays(t *testing.T) {
	t.Parallel()
	fresh := degrade.Policy{FreshFor: 10 * time.Minute} // without steps for refused requests
	for _, c := range []struct {
		name   string
		policy degrade.Policy
		age    time.Duration
		wish   degrade.Wish
		want   bool
	}{
		{"new", fresh, 0, degrade.Wish{}, true},
		{"at fresh_for", fresh, 10 * time.Minute, degrade.Wish{}, true},
		{"a millisecond beyond", fresh, 10*time.Minute + time.Millisecond, degrade.Wish{}, false},
		{"no-cache", fresh, 0, degrade.Wish{NoCache: true}, false},
		{"at max-age", fresh, time.Minute,
			degrade.Wish{MaxAge: time.Minute, HasMaxAge: true}, true},
		{"beyond max-age", fresh, time.Minute + time.Millisecond,
			degrade.Wish{MaxAge: time.Minute, HasMaxAge: true}, false},
		{"max-age doesn't widen fresh_for", fresh, 11 * time.Minute,
			degrade.Wish{MaxAge: time.Hour, HasMaxAge: true}, false},
		{"max-stale makes nothing fresh", fresh, 11 * time.Minute,
			degrade.Wish{MaxStale: time.Hour, HasMaxStale: true}, false},
		{"only-if-cached", fresh, time.Minute, degrade.Wish{OnlyIfCached: true}, true},
		{"no fresh_for", degrade.Policy{StaleFor: time.Hour}, 0, degrade.Wish{}, false},
	} {
		if got := c.policy.Fresh(c.age, c.wish); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAnAnswerIsKeptForAsLongAsARequestMayGetIt(t *testing.T) {
	t.Parallel()
	stale, reject := []degrade.Step{{Kind: degrade.Stale}}, []degrade.Step{{Kind: degrade.Reject}}
	for name, c := range map[string]struct {
		policy degrade.Policy
		want   time.Duration
	}{
		"stale": {degrade.Policy{Steps: stale, StaleFor: time.Hour}, time.Hour},
		"fresh": {degrade.Policy{Steps: reject, FreshFor: time.Minute},
			time.Minute},
		"fresh, then stale": {degrade.Policy{Steps: stale, FreshFor: time.Minute,
			StaleFor: time.Hour}, time.Hour},
		"fresh for longer": {degrade.Policy{Steps: stale, FreshFor: 2 * time.Hour,
			StaleFor: time.Hour}, 2 * time.Hour},
		"fresh, and no stale step": {degrade.Policy{Steps: reject, FreshFor: time.Minute,
			StaleFor: time.Hour}, time.Minute},
		"no stale step":            {degrade.Policy{Steps: reject, StaleFor: time.Hour}, 0},
		"a step without stale_for": {degrade.Policy{Steps: stale}, 0},
		"nothing":                  {degrade.Policy{}, 0},
	} {
		if got := c.policy.KeepFor(); got != c.want || c.policy.Keeps() != (c.want > 0) {
			t.Errorf("%s: kept %v for %v, want %v", name, c.policy.Keeps(), got, c.want)
		}
	}
}

func TestOnlyTheKeyPartsOfAPayloadDistinguishAnswers(t *testing.T) {
	t.Parallel()
	p := degrade.Policy{Share: degrade.ShareTier, Key: []string{"/month"}}
	of := func(client, tier, payload string) string {
		return p.CacheKey("report", client, tier, []byte(payload))
	}
	if of("acme", "pro", `{"month":11,"trace":1}`) != of("bolt", "pro", `{"month":11}`) {
		t.Error("equal parts have different keys")
	}
	november := of("acme", "pro", `{"month":11}`)
	if november == of("acme", "free", `{"month":11}`) ||
		november == of("acme", "pro", `{"month":12}`) {
		t.Error("different requests share a key")
	}
}

// Cases C47 and, for keys, C110.
func TestScopesSeparateCallersThatDontShare(t *testing.T) {
	t.Parallel()
	scope := func(share, client, tier string) string {
		return degrade.Policy{Share: share}.Scope(client, tier)
	}
	seen := map[string]string{}
	for caller, s := range map[string]string{
		"all":                      scope(degrade.ShareAll, "acme", "pro"),
		"tier pro":                 scope(degrade.ShareTier, "acme", "pro"),
		"tier free":                scope(degrade.ShareTier, "acme", "free"),
		"client acme":              scope(degrade.ShareClient, "acme", "pro"),
		"client pro":               scope(degrade.ShareClient, "pro", "pro"),
		"an address":               scope(degrade.ShareClient, "ip:192.0.2.1", "free"),
		"an address of other form": scope(degrade.ShareClient, "ip:2001:db8::/64", "free"),
	} {
		if other, ok := seen[s]; ok {
			t.Errorf("%s and %s share %q", caller, other, s)
		}
		seen[s] = caller
	}
	for _, share := range []string{"", "everyone"} {
		if got := scope(share, "acme", "pro"); got != scope(degrade.ShareClient, "acme", "pro") {
			t.Errorf("share %q has scope %q, want the client's own", share, got)
		}
	}
	if scope(degrade.ShareAll, "a", "x") != scope(degrade.ShareAll, "b", "y") ||
		scope(degrade.ShareTier, "a", "x") != scope(degrade.ShareTier, "b", "x") {
		t.Error("callers that share have different scopes")
	}
}

type caller struct{ client, tier string }

// stale returns the answer that a request may get stale, looked up and judged as the front does it.
func stale(t *testing.T, d *degrade.Degrader, p degrade.Policy, operation string, by caller,
	payload string, w degrade.Wish) (cache.Answer, bool, error) {
	t.Helper()
	a, ok, err := d.Known(t.Context(), p.CacheKey(operation, by.client, by.tier, []byte(payload)))
	if err != nil || !ok || !p.Serves(a.Age, w) {
		return cache.Answer{}, false, err
	}
	return a, true, nil
}

func TestOnlyCallersThatShareSeeTheAnswer(t *testing.T) {
	t.Parallel()
	acme, bolt, core := caller{"acme", "pro"}, caller{"bolt", "pro"}, caller{"core", "free"}
	for share, want := range map[string]map[caller]bool{
		degrade.ShareClient: {acme: true, bolt: false, core: false}, // case C110
		"":                  {acme: true, bolt: false, core: false},
		degrade.ShareTier:   {acme: true, bolt: true, core: false},
		degrade.ShareAll:    {acme: true, bolt: true, core: true},
	} {
		t.Run("share "+share, func(t *testing.T) {
			t.Parallel()
			answers := cache.New(redistest.Client(t))
			operation := redistest.Name(t, "op")
			p := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale},
				{Kind: degrade.Reject}}, StaleFor: time.Hour, Share: share}
			key := cache.Key(operation, p.Scope(acme.client, acme.tier),
				[]byte(`{"month":11,"year":2026}`))
			err := answers.Put(t.Context(), key, cache.Answer{Status: 200, Body: []byte("acme's"),
				Age: 10 * time.Minute}, p.StaleFor, cache.Owner{})
			if err != nil {
				t.Fatal(err)
			}
			d := degrade.New(answers)
			for by, sees := range want {
				a, ok, err := stale(t, d, p, operation, by, `{"year":2026, "month":11}`,
					degrade.Wish{})
				if err != nil || ok != sees || !sees && a.Body != nil ||
					sees && (string(a.Body) != "acme's" || a.Age < 10*time.Minute) {
					t.Errorf("%s: %v %q %v %v, want %v", by.client, ok, a.Body, a.Age, err, sees)
				}
			}
			for name, other := range map[string]struct {
				operation, payload string
				wish               degrade.Wish
			}{
				"another operation": {operation + "x", `{"month":11,"year":2026}`,
					degrade.Wish{}},
				"another payload": {operation, `{"month":11,"year":2026.0}`,
					degrade.Wish{}},
				"no-cache": {operation, `{"month":11,"year":2026}`,
					degrade.Wish{NoCache: true}},
				"too old for the caller": {operation, `{"month":11,"year":2026}`,
					degrade.Wish{MaxStale: 599 * time.Second, HasMaxStale: true}},
				"payload that is not JSON": {operation, `{"month":11,"year":2026`, degrade.Wish{}},
			} {
				a, ok, err := stale(t, d, p, other.operation, acme, other.payload, other.wish)
				if ok || err != nil || a.Body != nil {
					t.Errorf("%s: %v %q %v", name, ok, a.Body, err)
				}
			}
		})
	}
}

// Case C112: after a good and then a bad answer of the backend, the last good one is served.
func TestTheLastGoodAnswerIsServedAfterABadOne(t *testing.T) {
	t.Parallel()
	answers := cache.New(redistest.Client(t))
	operation := redistest.Name(t, "op")
	p := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}}, StaleFor: time.Hour,
		Share: degrade.ShareAll}
	key := cache.Key(operation, p.Scope("", ""), nil)
	for _, a := range []cache.Answer{{Status: 200, Body: []byte("good")},
		{Status: 500, Body: []byte("<html>")}, {Status: 404}, {Status: 302}} {
		if err := answers.Put(t.Context(), key, a, p.StaleFor, cache.Owner{}); err != nil &&
			!errors.Is(err, cache.ErrNotGood) {
			t.Fatal(err)
		}
	}
	a, ok, err := stale(t, degrade.New(answers), p, operation, caller{"acme", "pro"}, "",
		degrade.Wish{})
	if err != nil || !ok || a.Status != 200 || string(a.Body) != "good" {
		t.Errorf("%+v, %v, %v", a, ok, err)
	}
}

func TestARememberedAnswerIsServedToCallersThatShareItWithoutTheStore(t *testing.T) {
	t.Parallel()
	acme, bolt, core := caller{"acme", "pro"}, caller{"bolt", "pro"}, caller{"core", "free"}
	for share, want := range map[string]map[caller]bool{
		degrade.ShareClient: {acme: true, bolt: false, core: false}, // case C110
		degrade.ShareTier:   {acme: true, bolt: true, core: false},
		degrade.ShareAll:    {acme: true, bolt: true, core: true},
	} {
		memory := cache.NewMemory(cache.New(redistest.Unavailable(t)), 0, func() bool {
			return false
		})
		defer memory.Close()
		d := degrade.New(memory)
		p := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}},
			StaleFor: time.Hour, Share: share}
		job := jobs.Job{ID: "b-1", Operation: "op", Client: acme.client, Tier: acme.tier,
			Payload: []byte(`{"month":11,"year":2026}`)}
		key := p.CacheKey(job.Operation, job.Client, job.Tier, job.Payload)
		a := cache.Answer{Status: 201, ContentType: "a/b", Body: []byte("acme's"),
			Age: 10 * time.Minute}
		if err := memory.Put(t.Context(), key, a, p.KeepFor(),
			cache.Owner{}); !errors.Is(err, redistest.ErrUnavailable) {
			t.Fatal(err)
		}
		for by, sees := range want {
			a, ok, err := stale(t, d, p, "op", by, `{"year":2026, "month":11}`, degrade.Wish{})
			switch {
			case ok != sees, ok && err != nil, !ok && !errors.Is(err, cache.ErrUnavailable):
				t.Errorf("share %s, %s: %v, %v; want %v", share, by.client, ok, err, sees)
			case ok && (a.Status != 201 || a.ContentType != "a/b" || string(a.Body) != "acme's" ||
				a.Age < 10*time.Minute):
				t.Errorf("share %s, %s: %+v", share, by.client, a)
			}
		}
		old := degrade.Wish{MaxStale: 599 * time.Second, HasMaxStale: true}
		if _, ok, err := stale(t, d, p, "op", acme, string(job.Payload), old); ok || err != nil {
			t.Errorf("share %s, too old for the caller: %v, %v", share, ok, err)
		}
	}
}

// Case C114: within stale_for, and one second beyond, while the store is unavailable and time
// passes.
func TestAStaleAnswerIsServedUntilItIsTooOldWithoutTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := cache.NewMemory(cache.New(redistest.Unavailable(t)), 0, func() bool {
			return false
		})
		defer memory.Close()
		d := degrade.New(memory)
		p := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}},
			StaleFor: time.Hour}
		a := cache.Answer{Status: 200, Body: []byte("a"), Age: 10 * time.Minute}
		err := memory.Put(t.Context(), p.CacheKey("op", "acme", "", nil), a, p.KeepFor(),
			cache.Owner{})
		if !errors.Is(err, redistest.ErrUnavailable) {
			t.Fatal(err)
		}
		for _, step := range []struct {
			sleep, age time.Duration
			ok         bool
		}{{50*time.Minute - time.Second, time.Hour - time.Second, true},
			{2 * time.Second, 0, false}} {
			time.Sleep(step.sleep)
			a, ok, _ := stale(t, d, p, "op", caller{client: "acme"}, "", degrade.Wish{})
			if ok != step.ok || a.Age != step.age {
				t.Errorf("%v of age %v, want %v of %v", ok, a.Age, step.ok, step.age)
			}
		}
	})
}
