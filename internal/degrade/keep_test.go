package degrade_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"forebay/internal/cache"
	"forebay/internal/degrade"
	"forebay/internal/jobs"
	"forebay/internal/redistest"
)

func TestWhatIsKeptIsServedToWhoSharesIt(t *testing.T) {
	t.Parallel()
	answers := cache.New(redistest.Client(t))
	operation := redistest.Name(t, "op")
	p := degrade.Policy{Steps: []degrade.Step{{Kind: degrade.Stale}, {Kind: degrade.Reject}}, StaleFor: time.Hour, Share: degrade.ShareTier}
	keeper, degrader := degrade.NewKeeper(answers, map[string]degrade.Policy{operation: p}), degrade.New(answers)
	job := jobs.Job{ID: "b-1", Operation: operation, Client: "acme", Tier: "pro", Payload: []byte(`{"month":11,"year":2026}`)}
	body := "\x00\xff {\"n\":616581622363398142}\n"
	if err := keeper.Store(t.Context(), job, jobs.Meta{Status: 201, ContentType: "a/b", Size: int64(len(body))}, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for who, want := range map[caller]bool{{"acme", "pro"}: true, {"bolt", "pro"}: true, {"core", "free"}: false} {
		a, ok, err := degrader.Stale(t.Context(), p, operation, who.client, who.tier, []byte(`{"year": 2026, "month": 11}`), degrade.Wish{})
		if err != nil || ok != want || ok && (a.Status != 201 || a.ContentType != "a/b" || string(a.Body) != body) {
			t.Errorf("%s: %v %+v %v, want %v", who.client, ok, a, err, want)
		}
	}
}

// storeFunc counts as a place to keep answers.
type storeFunc func(key string, a cache.Answer, staleFor time.Duration) error

func (f storeFunc) Put(_ context.Context, key string, a cache.Answer, staleFor time.Duration, _ cache.Owner) error {
	return f(key, a, staleFor)
}

func TestOnlyWhatMayBeServedLaterIsKept(t *testing.T) {
	t.Parallel()
	stale, reject := []degrade.Step{{Kind: degrade.Stale}}, []degrade.Step{{Kind: degrade.Reject}}
	policies := map[string]degrade.Policy{
		"stale":   {Steps: stale, StaleFor: time.Hour},
		"reject":  {Steps: reject, StaleFor: time.Hour},
		"forever": {Steps: stale},
	}
	for operation, want := range map[string]int{"stale": 1, "reject": 0, "forever": 0, "unknown": 0} {
		kept := 0
		keeper := degrade.NewKeeper(storeFunc(func(_ string, _ cache.Answer, staleFor time.Duration) error {
			kept++
			if staleFor != time.Hour {
				t.Errorf("%s: kept for %v, want 1h", operation, staleFor)
			}
			return nil
		}), policies)
		if err := keeper.Store(t.Context(), jobs.Job{Operation: operation, Client: "acme"}, jobs.Meta{Status: 200}, nil); err != nil || kept != want {
			t.Errorf("%s: kept %d times, %v; want %d", operation, kept, err, want)
		}
	}
}

func TestAFailedKeepingNamesTheJob(t *testing.T) {
	t.Parallel()
	full := errors.New("no room")
	keeper := degrade.NewKeeper(storeFunc(func(string, cache.Answer, time.Duration) error { return full }),
		map[string]degrade.Policy{"op": {Steps: []degrade.Step{{Kind: degrade.Stale}}, StaleFor: time.Hour}})
	err := keeper.Store(t.Context(), jobs.Job{ID: "b-7", Operation: "op"}, jobs.Meta{Status: 200}, nil)
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "b-7") {
		t.Errorf("error %v", err)
	}
}
