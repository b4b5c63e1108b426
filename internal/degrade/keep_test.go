package degrade_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

func TestAStoredAnswerIsServedToCallersThatShareIt(t *testing.T) {
	t.Parallel()
	answers := cache.New(redistest.Client(t))
	operation := redistest.Name(t, "op")
	p := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}},
		StaleFor: time.Hour, Share: degrade.ShareTier}
	keeper, degrader := degrade.NewKeeper(answers, map[string]degrade.Policy{operation: p}),
		degrade.New(answers)
	job := jobs.Job{ID: "b-1", Operation: operation, Client: "acme", Tier: "pro",
		Payload: []byte(`{"month":11,"year":2026}`)}
	body := "\x00\xff {\"n\":616581622363398142}\n"
	meta := jobs.Meta{Status: 201, ContentType: "a/b", Fields: "Etag: 1\n", Size: int64(len(body))}
	if err := keeper.Learn(t.Context(), job, meta, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for by, want := range map[caller]bool{
		{"acme", "pro"}: true, {"bolt", "pro"}: true, {"core", "free"}: false,
	} {
		a, ok, err := stale(t, degrader, p, operation, by, `{"year": 2026, "month": 11}`,
			degrade.Wish{})
		good := a.Status == 201 && a.ContentType == "a/b" && a.Fields == "Etag: 1\n"
		if err != nil || ok != want || ok && (!good || string(a.Body) != body) {
			t.Errorf("%s: %v %+v %v, want %v", by.client, ok, a, err, want)
		}
	}
}

// storeFunc is a Store that only counts what is put.
type storeFunc func(key string, a cache.Answer, staleFor time.Duration) error

func (f storeFunc) Put(_ context.Context, key string, a cache.Answer, staleFor time.Duration,
	_ cache.Owner) error {
	return f(key, a, staleFor)
}

func (f storeFunc) Forget(context.Context, string) error { return nil }

func TestOnlyAnswersThatMayBeServedLaterAreStored(t *testing.T) {
	t.Parallel()
	stale, reject := []degrade.Step{{Kind: degrade.Stale}}, []degrade.Step{{Kind: degrade.Reject}}
	policies := map[string]degrade.Policy{
		"stale":   {Steps: stale, StaleFor: time.Hour},
		"reject":  {Steps: reject, StaleFor: time.Hour},
		"forever": {Steps: stale},
	}
	for operation, want := range map[string]int{"stale": 1, "reject": 0, "forever": 0,
		"unknown": 0} {
		kept := 0
		store := func(_ string, _ cache.Answer, staleFor time.Duration) error {
			kept++
			if staleFor != time.Hour {
				t.Errorf("%s: kept for %v, want 1h", operation, staleFor)
			}
			return nil
		}
		keeper := degrade.NewKeeper(storeFunc(store), policies)
		job := jobs.Job{Operation: operation, Client: "acme"}
		err := keeper.Learn(t.Context(), job, jobs.Meta{Status: 200}, nil)
		if err != nil || kept != want {
			t.Errorf("%s: kept %d times, %v; want %d", operation, kept, err, want)
		}
	}
}

func TestTheBackendMayForbidStoring(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header string // lines of Cache-Control, separated by |
		share  string
		kept   bool
	}{
		{``, degrade.ShareAll, true}, {`max-age=60, public`, degrade.ShareAll, true},
		{`no-cache`, degrade.ShareAll, true},
		{`no-store`, degrade.ShareClient, false}, {`No-Store`, degrade.ShareAll, false},
		{`max-age=60|no-store`, "", false}, {`private, no-store`, degrade.ShareClient, false},
		// as in Scope
		{`private`, degrade.ShareClient, true}, {`private`, "", true},
		{`private`, "everyone", true},
		{`private`, degrade.ShareTier, false}, {`PRIVATE, max-age=5`, degrade.ShareAll, false},
		{`private="set-cookie, x"`, degrade.ShareAll, false},
		{`x="private, no-store"`, degrade.ShareAll, true},
		{`no-storey, privateer`, degrade.ShareAll, true},
	} {
		kept := false
		keeper := degrade.NewKeeper(storeFunc(func(string, cache.Answer, time.Duration) error {
			kept = true
			return nil
		}), map[string]degrade.Policy{"op": {FreshFor: time.Minute, Share: c.share}})
		meta := jobs.Meta{Status: 200, Storing: degrade.Storing(strings.Split(c.header, "|"))}
		job := jobs.Job{Operation: "op", Client: "acme"}
		if err := keeper.Learn(t.Context(), job, meta, nil); err != nil || kept != c.kept {
			t.Errorf("Cache-Control: %s, share %q: kept %v, %v; want %v", c.header, c.share, kept,
				err, c.kept)
		}
	}
	if got := degrade.Storing(nil); got != "" {
		t.Errorf("without the field: %q", got)
	}
}

// Cases C112 and C113: an answer that proves the last good one wrong removes it. Temporary
// failures, and answers that prove nothing, leave it.
func TestOnlyADefiniteAnswerChangesWhatIsStored(t *testing.T) {
	t.Parallel()
	answers, operation := cache.New(redistest.Client(t)), redistest.Name(t, "op")
	p := degrade.Policy{FreshFor: time.Hour, Key: []string{"/id"}, Share: degrade.ShareAll}
	keeper := degrade.NewKeeper(answers, map[string]degrade.Policy{operation: p})
	learn := func(status int, storing string) {
		t.Helper()
		job := jobs.Job{Operation: operation, Client: "acme",
			Payload: []byte(`{"id":1,"trace":"a"}`)}
		meta := jobs.Meta{Status: status, Storing: storing}
		if err := keeper.Learn(t.Context(), job, meta,
			[]byte(http.StatusText(status))); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
	key := p.CacheKey(operation, "bolt", "pro", []byte(`{"trace":"b","id":1}`))
	for _, c := range []struct {
		status  int
		storing string
		stays   bool
	}{
		{301, "", true}, {304, "", true}, {400, "", true}, {405, "", true}, {408, "", true},
		{409, "", true}, {422, "", true}, {425, "", true},
		{429, "", true}, {500, "", true}, {500, jobs.NoStore, true}, {503, "", true},
		{504, "", true}, {0, "", true},
		{401, "", false}, {403, "", false}, {404, "", false}, {410, "", false}, {451, "", false},
		{404, jobs.NoStore, false},
		{200, jobs.NoStore, false}, {206, jobs.NoStore, false}, {200, jobs.Private, false},
	} {
		learn(200, "")
		learn(c.status, c.storing)
		a, ok, err := degrade.New(answers).Known(t.Context(), key)
		if err != nil || ok != c.stays || ok && string(a.Body) != "OK" {
			t.Errorf("after %d %s: %q, %v, %v; want it there: %v", c.status, c.storing, a.Body, ok,
				err, c.stays)
		}
	}
	learn(200, "")
	n, err := answers.Purge(t.Context(), cache.Filter{Operation: operation, Client: "acme"})
	if n != 1 || err != nil {
		t.Errorf("its owner isn't known: removed %d, %v", n, err)
	}
}

// Issue 10, point 11: the answer to a request with no-store isn't stored, nor a private one of
// callers that only share an address.
func TestAnAnswerMeantForOneCallerIsNotStored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		job     jobs.Job
		storing string
		kept    bool
	}{
		{jobs.Job{Client: "acme", NoStore: true}, "", false},
		{jobs.Job{Client: "acme", NoStore: true}, jobs.Private, false},
		{jobs.Job{Client: "acme"}, jobs.Private, true}, {jobs.Job{Client: "acme"}, "", true},
		{jobs.Job{Client: "ip:192.0.2.1"}, jobs.Private, false},
		{jobs.Job{Client: "ip:192.0.2.1"}, "", false},
	} {
		kept := false
		keeper := degrade.NewKeeper(storeFunc(func(string, cache.Answer, time.Duration) error {
			kept = true
			return nil
		}), map[string]degrade.Policy{"op": {FreshFor: time.Minute}})
		c.job.Operation = "op"
		meta := jobs.Meta{Status: 200, Storing: c.storing}
		if err := keeper.Learn(t.Context(), c.job, meta, nil); err != nil || kept != c.kept {
			t.Errorf("%+v, %s: kept %v, %v; want %v", c.job, c.storing, kept, err, c.kept)
		}
	}
}

func TestAFailureToStoreNamesTheJob(t *testing.T) {
	t.Parallel()
	full := errors.New("no room")
	keeper := degrade.NewKeeper(
		storeFunc(func(string, cache.Answer, time.Duration) error { return full }),
		map[string]degrade.Policy{
			"op": {Steps: []degrade.Step{{Kind: degrade.Stale}}, StaleFor: time.Hour},
		})
	err := keeper.Learn(t.Context(), jobs.Job{ID: "b-7", Operation: "op"},
		jobs.Meta{Status: 200}, nil)
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "b-7") {
		t.Errorf("error %v", err)
	}
}
