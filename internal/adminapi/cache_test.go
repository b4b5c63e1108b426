package adminapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/adminapi"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/testforebay"
)

func (w *world) cachedAnswer(query url.Values) answer {
	w.Helper()
	return w.Call("GET", w.Admin+"/admin/v1/cache/entry?"+query.Encode(), "")
}

func TestOperatorsSeeWhatIsKnownAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			c.Operation(w.Report).Overload.FreshFor = 30 * time.Second
		}
	})
	own := w.ClientA()
	w.Keep(w.Report, own, `1`) // of 7 bytes, and a minute old
	w.Keep(w.Report, "acme", `2`)
	w.Keep(w.Shared, "acme", `1`)
	w.Remember(w.Report, degrade.Policy{}.Scope(own, "pro"), `3`,
		cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("fresh"),
			Age: time.Second})
	only := field("Cache-Control", "only-if-cached")
	for range 3 {
		w.Want(w.Submit(w.Report, `3`, key(keyA)), 200)
	}
	for range 2 {
		w.Want(w.Submit(w.Report, `1`, key(keyA), only), 200)
	}
	w.Want(w.Submit(w.Report, `4`, key(keyA), only), http.StatusGatewayTimeout)
	var got api.Cache
	strictly(t, "cache", w.Want(w.Call("GET", w.Admin+"/admin/v1/cache", ""), 200).Text, &got)
	if len(got.Operations) != 4 {
		t.Fatalf("%+v", got)
	}
	for _, o := range got.Operations {
		bytes := o.Bytes
		o.Bytes = 0
		want := api.CachedOperation{Operation: o.Operation}
		switch o.Operation {
		case w.Report:
			want = api.CachedOperation{Operation: w.Report, Answers: 2, Hits: 3, Stale: 2,
				Misses:      1,
				ServedBytes: 3*5 + 2*7}
		case w.Shared:
			want.Answers = 1
		}
		if o != want || bytes < int64(7*o.Answers) || bytes > int64(107*o.Answers) {
			t.Errorf("%+v of %d bytes, want %+v", o, bytes, want)
		}
	}
	w.Problem(w.Call("GET", w.Admin+"/admin/v1/cache?x=1", ""), http.StatusBadRequest,
		api.CodeInvalidRequest)
}

func TestOperatorsLookUpAStoredAnswerButDontReadIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			// plain's
			c.Enter.Operations[2].Overload = degrade.Policy{FreshFor: time.Hour,
				Share: degrade.ShareTier, Key: []string{"/id"}}
		}
	})
	own, shared, tiers := w.Keep(w.Report, "acme", `{"a":1,"b":2}`),
		w.Keep(w.Shared, "acme", `{"a":1,"b":2}`), w.Keep(w.Plain, "acme", `{"id":7}`)
	for _, c := range []struct {
		key   string
		query url.Values
	}{
		{own, url.Values{"key": {own}}},
		{own, url.Values{"operation": {w.Report}, "client": {"acme"},
			"payload": {`{"b":2, "a":1}`}}},
		{shared, url.Values{"operation": {w.Shared}, "payload": {`{"b":2, "a":1}`}}},
		{tiers, url.Values{"operation": {w.Plain}, "tier": {"pro"},
			"payload": {`{"id":7,"trace":"x"}`}}},
	} {
		a := w.Want(w.cachedAnswer(c.query), 200)
		var got api.CachedAnswer
		strictly(t, "entry", a.Text, &got)
		if got.Key != c.key || got.Status != 201 || got.ContentType != "text/plain" ||
			got.Size != 7 || got.AgeSeconds < 60 || got.AgeSeconds > 120 ||
			got.RemovedInSeconds > 3540 || got.RemovedInSeconds < 3400 ||
			strings.Contains(string(a.Text), "secret") {
			t.Errorf("%v: %s", c.query, a.Text)
		}
	}
	for _, none := range []url.Values{
		{"operation": {w.Report}, "client": {"bolt"}, "payload": {`{"a":1,"b":2}`}},
		{"operation": {w.Report}, "client": {"acme"}, "payload": {`{"a":1}`}},
		{"key": {cache.Key("none", "", nil)}},
	} {
		w.Problem(w.cachedAnswer(none), http.StatusNotFound, api.CodeNoAnswer)
	}
	w.Problem(w.cachedAnswer(url.Values{"operation": {"unknown"}, "payload": {`1`}}),
		http.StatusNotFound, api.CodeUnknownOperation)
	for _, wrong := range []url.Values{
		{}, {"operation": {w.Report}}, {"payload": {`1`}},
		{"operation": {w.Report}, "payload": {`1`}},
		{"operation": {w.Plain}, "payload": {`1`}, "client": {"acme"}},
		{"operation": {w.Shared}, "payload": {`{`}}, {"key": {own}, "client": {"acme"}},
		{"key": {"fb:{reports}:line"}}, {"key": {own}, "x": {"1"}},
		{"key": {own, own}}, {"key": {""}},
	} {
		w.Problem(w.cachedAnswer(wrong), http.StatusBadRequest, api.CodeInvalidRequest)
	}
}

func (w *world) purgeAnswers(body string, fields ...[2]string) answer {
	w.Helper()
	return w.Call("POST", w.Admin+"/admin/v1/cache/purge", body, fields...)
}

func TestOperatorsPurgeStoredAnswersAndThatIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	key := w.Keep(w.Report, w.ClientA(), `1`)
	w.Keep(w.Report, w.ClientA(), `2`)
	w.Keep(w.Shared, w.ClientA(), `1`)
	w.Keep(w.Report, "ip:192.0.2.1", `1`)
	for _, c := range []struct{ body, removed string }{
		{`{"key":"` + key + `"}`, "1"},
		{`{"key":"` + key + `"}`, "0"},
		{`{"client":"` + w.ClientA() + `","operation":"` + w.Report + `"}`, "1"},
		{`{"client":"` + w.ClientA() + `"}`, "1"},
		{`{"operation":"` + w.Report + `","client":"ip:192.0.2.1"}`, "1"},
		{`{"operation":"` + w.Report + `"}`, "0"},
	} {
		if a := w.Want(w.purgeAnswers(c.body, field(api.HeaderOperator, "maria")),
			200); string(a.Text) != `{"removed":`+c.removed+"}\n" &&
			string(a.Text) != `{"removed":`+c.removed+"}" {
			t.Errorf("%s: %s, want %s", c.body, a.Text, c.removed)
		}
	}
	w.audited(`msg="stored answers purged"`, "by=maria address=127.0.0.1",
		`operation="" client="" key=`+key, "removed=1\n")
	w.audited(`msg="stored answers purged"`, "operation="+w.Report+" client="+w.ClientA(),
		"removed=1\n")
	// an address is personal
	w.audited(`msg="stored answers purged"`, "operation="+w.Report+" client=anonymous",
		"removed=1\n")
	if strings.Contains(w.Logs.String(), "192.0.2.1") {
		t.Error("an address in the log")
	}
	for body, code := range map[string]string{
		`{}`: api.CodeInvalidRequest, `[]`: api.CodeInvalidRequest, `null`: api.CodeInvalidRequest,
		`{"operation":""}`: api.CodeInvalidFields, `{"client":null}`: api.CodeInvalidFields,
		`{"key":"fb:{reports}:line"}`: api.CodeInvalidFields,
		`{"all":true}`:                api.CodeInvalidFields,
	} {
		status := http.StatusUnprocessableEntity
		if code == api.CodeInvalidRequest {
			status = http.StatusBadRequest
		}
		w.Problem(w.purgeAnswers(body), status, code)
	}
	w.Store.Down.Store(true)
	w.Problem(w.purgeAnswers(`{"operation":"`+w.Report+`"}`), http.StatusServiceUnavailable,
		api.CodeStore)
}

// unruly is a Stored that fails.
type unruly struct{ adminapi.Stored }

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
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			c.Operators.Stored = unruly{}
		}
	})
	w.Problem(w.Call("GET", w.Admin+"/admin/v1/cache", ""), http.StatusServiceUnavailable,
		api.CodeStore)
	w.Problem(w.cachedAnswer(url.Values{"key": {cache.Key("", "", nil)}}),
		http.StatusServiceUnavailable, api.CodeStore)
	w.Problem(w.purgeAnswers(`{"client":"acme"}`), http.StatusServiceUnavailable, api.CodeStore)
	// some may be gone
	w.audited(`msg="stored answers purged"`, "outcome=unknown error=unruly", "removed=3\n")
}

// A token guards them as all other calls of operators.
func TestStoredAnswersAreForOperatorsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Token = "secret" })
	key := w.Keep(w.Report, "acme", `1`)
	for _, a := range []answer{w.Call("GET", w.Admin+"/admin/v1/cache", ""),
		w.cachedAnswer(url.Values{"key": {key}}), w.purgeAnswers(`{"client":"acme"}`)} {
		w.Problem(a, http.StatusUnauthorized, api.CodeInvalidCredentials)
	}
	if _, ok, _ := w.Cache.Get(t.Context(), key); !ok {
		t.Error("purged all the same")
	}
}
