package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
)

// keep stores an answer of 7 bytes to a request of the client, as the worker does, and returns its key.
func (w *world) keep(operation, client, payload string) string {
	w.Helper()
	var p degrade.Policy
	for _, o := range w.config.enter.Operations {
		if o.Name == operation {
			p = o.Overload
		}
	}
	key := p.CacheKey(operation, client, "pro", []byte(payload))
	a := cache.Answer{Status: 201, ContentType: "text/plain", Body: []byte("secret\n"), Age: time.Minute}
	if err := w.cache.Put(context.Background(), key, a, time.Hour, cache.Owner{Operation: operation, Client: client}); err != nil {
		w.Fatal(err)
	}
	return key
}

func (w *world) cachedAnswer(query url.Values) answer {
	w.Helper()
	return w.call("GET", w.admin+"/admin/v1/cache/entry?"+query.Encode(), "")
}

func TestOperatorsSeeWhatIsKnownAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.keep(w.report, "acme", `1`)
	w.keep(w.report, "acme", `2`)
	w.keep(w.shared, "acme", `1`)
	n := w.server.cached[w.report]
	n.hits.Add(5)
	n.stale.Add(4)
	n.misses.Add(3)
	n.bytes.Add(63)
	var got api.Cache
	strictly(t, "cache", w.want(w.call("GET", w.admin+"/admin/v1/cache", ""), 200).body, &got)
	if len(got.Operations) != 4 {
		t.Fatalf("%+v", got)
	}
	for _, o := range got.Operations {
		bytes := o.Bytes
		o.Bytes = 0
		want := api.CachedOperation{Operation: o.Operation}
		switch o.Operation {
		case w.report:
			want = api.CachedOperation{Operation: w.report, Answers: 2, Hits: 5, Stale: 4, Misses: 3, ServedBytes: 63}
		case w.shared:
			want.Answers = 1
		}
		if o != want || bytes < int64(7*o.Answers) || bytes > int64(107*o.Answers) {
			t.Errorf("%+v of %d bytes, want %+v", o, bytes, want)
		}
	}
	w.problem(w.call("GET", w.admin+"/admin/v1/cache?x=1", ""), http.StatusBadRequest, api.CodeInvalidRequest)
}

func TestOperatorsLookUpAStoredAnswerButDontReadIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) {
			c.enter.Operations[2].Overload = degrade.Policy{FreshFor: time.Hour, Share: degrade.ShareTier, Key: []string{"/id"}} // plain's
		}
	})
	own, shared, tiers := w.keep(w.report, "acme", `{"a":1,"b":2}`), w.keep(w.shared, "acme", `{"a":1,"b":2}`), w.keep(w.plain, "acme", `{"id":7}`)
	for _, c := range []struct {
		key   string
		query url.Values
	}{
		{own, url.Values{"key": {own}}},
		{own, url.Values{"operation": {w.report}, "client": {"acme"}, "payload": {`{"b":2, "a":1}`}}},
		{shared, url.Values{"operation": {w.shared}, "payload": {`{"b":2, "a":1}`}}},
		{tiers, url.Values{"operation": {w.plain}, "tier": {"pro"}, "payload": {`{"id":7,"trace":"x"}`}}},
	} {
		a := w.want(w.cachedAnswer(c.query), 200)
		var got api.CachedAnswer
		strictly(t, "entry", a.body, &got)
		if got.Key != c.key || got.Status != 201 || got.ContentType != "text/plain" || got.Size != 7 || got.AgeSeconds < 60 || got.AgeSeconds > 120 ||
			got.RemovedInSeconds > 3540 || got.RemovedInSeconds < 3400 || strings.Contains(string(a.body), "secret") {
			t.Errorf("%v: %s", c.query, a.body)
		}
	}
	for _, none := range []url.Values{
		{"operation": {w.report}, "client": {"bolt"}, "payload": {`{"a":1,"b":2}`}},
		{"operation": {w.report}, "client": {"acme"}, "payload": {`{"a":1}`}},
		{"key": {cache.Key("none", "", nil)}},
	} {
		w.problem(w.cachedAnswer(none), http.StatusNotFound, api.CodeNoAnswer)
	}
	w.problem(w.cachedAnswer(url.Values{"operation": {"unknown"}, "payload": {`1`}}), http.StatusNotFound, api.CodeUnknownOperation)
	for _, wrong := range []url.Values{
		{}, {"operation": {w.report}}, {"payload": {`1`}}, {"operation": {w.report}, "payload": {`1`}}, {"operation": {w.plain}, "payload": {`1`}, "client": {"acme"}},
		{"operation": {w.shared}, "payload": {`{`}}, {"key": {own}, "client": {"acme"}}, {"key": {"fb:{reports}:line"}}, {"key": {own}, "x": {"1"}},
		{"key": {own, own}}, {"key": {""}},
	} {
		w.problem(w.cachedAnswer(wrong), http.StatusBadRequest, api.CodeInvalidRequest)
	}
}

func (w *world) purgeAnswers(body string, fields ...[2]string) answer {
	w.Helper()
	return w.call("POST", w.admin+"/admin/v1/cache/purge", body, fields...)
}

func TestOperatorsPurgeStoredAnswersAndThatIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	key := w.keep(w.report, w.clientA(), `1`)
	w.keep(w.report, w.clientA(), `2`)
	w.keep(w.shared, w.clientA(), `1`)
	w.keep(w.report, "ip:192.0.2.1", `1`)
	for _, c := range []struct{ body, removed string }{
		{`{"key":"` + key + `"}`, "1"},
		{`{"key":"` + key + `"}`, "0"},
		{`{"client":"` + w.clientA() + `","operation":"` + w.report + `"}`, "1"},
		{`{"client":"` + w.clientA() + `"}`, "1"},
		{`{"operation":"` + w.report + `","client":"ip:192.0.2.1"}`, "1"},
		{`{"operation":"` + w.report + `"}`, "0"},
	} {
		if a := w.want(w.purgeAnswers(c.body, field(api.HeaderOperator, "maria")), 200); string(a.body) != `{"removed":`+c.removed+"}\n" && string(a.body) != `{"removed":`+c.removed+"}" {
			t.Errorf("%s: %s, want %s", c.body, a.body, c.removed)
		}
	}
	w.audited(`msg="stored answers purged"`, "by=maria address=127.0.0.1", `operation="" client="" key=`+key, "removed=1\n")
	w.audited(`msg="stored answers purged"`, "operation="+w.report+" client="+w.clientA(), "removed=1\n")
	w.audited(`msg="stored answers purged"`, "operation="+w.report+" client=anonymous", "removed=1\n") // an address is personal
	if strings.Contains(w.log.String(), "192.0.2.1") {
		t.Error("an address in the log")
	}
	for body, code := range map[string]string{
		`{}`: api.CodeInvalidRequest, `[]`: api.CodeInvalidRequest, `null`: api.CodeInvalidRequest,
		`{"operation":""}`: api.CodeInvalidFields, `{"client":null}`: api.CodeInvalidFields, `{"key":"fb:{reports}:line"}`: api.CodeInvalidFields, `{"all":true}`: api.CodeInvalidFields,
	} {
		status := http.StatusUnprocessableEntity
		if code == api.CodeInvalidRequest {
			status = http.StatusBadRequest
		}
		w.problem(w.purgeAnswers(body), status, code)
	}
	w.store.down.Store(true)
	w.problem(w.purgeAnswers(`{"operation":"`+w.report+`"}`), http.StatusServiceUnavailable, api.CodeStore)
}

// unruly is a Stored that fails.
type unruly struct{ Stored }

var errUnruly = errors.New("unruly")

func (unruly) Holding(context.Context, string) (cache.Holding, error) {
	return cache.Holding{}, errUnruly
}
func (unruly) Inspect(context.Context, string) (cache.Entry, bool, error) {
	return cache.Entry{}, false, errUnruly
}
func (unruly) Purge(context.Context, cache.Filter) (int, error) { return 3, errUnruly }

func TestAStoreThatFailsOperatorsIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.adjust = func(_ *world, c *worldConfig) { c.Stored = unruly{} } })
	w.problem(w.call("GET", w.admin+"/admin/v1/cache", ""), http.StatusServiceUnavailable, api.CodeStore)
	w.problem(w.cachedAnswer(url.Values{"key": {cache.Key("", "", nil)}}), http.StatusServiceUnavailable, api.CodeStore)
	w.problem(w.purgeAnswers(`{"client":"acme"}`), http.StatusServiceUnavailable, api.CodeStore)
	w.audited(`msg="stored answers purged"`, "outcome=unknown error=unruly", "removed=3\n") // some may be gone
}

// A token guards them as all other calls of operators.
func TestStoredAnswersAreForOperatorsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.token = "secret" })
	key := w.keep(w.report, "acme", `1`)
	for _, a := range []answer{w.call("GET", w.admin+"/admin/v1/cache", ""), w.cachedAnswer(url.Values{"key": {key}}), w.purgeAnswers(`{"client":"acme"}`)} {
		w.problem(a, http.StatusUnauthorized, api.CodeInvalidCredentials)
	}
	if _, ok, _ := w.cache.Get(t.Context(), key); !ok {
		t.Error("purged all the same")
	}
}
