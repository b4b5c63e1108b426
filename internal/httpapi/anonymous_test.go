package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Callers without a key may share an address and are strangers all the same: a job is seen, fetched, canceled and
// purged by the bearer of its id, wherever it asks from (C99), and by no client that has a key.
func TestAJobWithoutAKeyIsItsBearers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	home, roaming := from("192.0.2.1"), from("198.51.100.7")
	id := w.job(w.want(w.submit(w.plain, `1`, home), http.StatusAccepted)).ID
	if !jobs.Random(id) {
		t.Errorf("%s can be guessed", id)
	}
	path := "/v1/jobs/" + id
	for _, caller := range [][2]string{home, roaming} {
		w.want(w.get(path, caller), 200)
	}
	w.problem(w.get(path, key(keyA), home), http.StatusNotFound, api.CodeUnknownJob)
	w.problem(w.call("DELETE", w.url+path, "", key(keyA), home), http.StatusNotFound, api.CodeUnknownJob)
	w.succeed(id, 200, "text/plain", []byte("done"))
	w.want(w.get(path+"/result", roaming), 200)
	w.problem(w.get(path+"/result", key(keyA), home), http.StatusNotFound, api.CodeUnknownJob)
	w.want(w.call("DELETE", w.url+path+"?purge=1", "", roaming), http.StatusNoContent)
	for _, caller := range [][2]string{home, roaming} {
		w.problem(w.get(path, caller), http.StatusGone, api.CodeJobGone)
	}
	w.problem(w.get(path, key(keyA), home), http.StatusNotFound, api.CodeUnknownJob)

	other := w.job(w.submit(w.plain, `1`, home)).ID
	w.want(w.call("DELETE", w.url+"/v1/jobs/"+other, "", roaming), 200)

	// A client's job is not its bearer's.
	mine := "/v1/jobs/" + w.job(w.submit(w.plain, `1`, key(keyA))).ID
	w.problem(w.get(mine, home), http.StatusNotFound, api.CodeUnknownJob)
	w.problem(w.get(mine, key(keyB)), http.StatusNotFound, api.CodeUnknownJob)
	w.want(w.get(mine, key(keyA), roaming), 200)
}

// Jobs that were accepted before ids were random stay their address's.
func TestAJobWithAnOldIDStillNeedsItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := jobs.DeriveID(w.backend, "ip:192.0.2.1", w.plain, "order-1")
	_, err := w.line.Offer(t.Context(), leaky.Offer{Job: jobs.Job{ID: id, Operation: w.plain, Client: "ip:192.0.2.1", Tier: "free",
		Priority: jobs.Normal, Payload: []byte(`1`)}, Weight: 1, MaxAge: time.Hour, Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w.want(w.get("/v1/jobs/"+id, from("192.0.2.1")), 200)
	w.problem(w.get("/v1/jobs/"+id, from("192.0.2.2")), http.StatusNotFound, api.CodeUnknownJob)
	w.want(w.call("DELETE", w.url+"/v1/jobs/"+id, "", from("192.0.2.1")), 200)
}

func TestCallersWithoutAKeyHaveNoList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.want(w.submit(w.plain, `1`, from("192.0.2.1")), http.StatusAccepted)
	a := w.get("/v1/jobs", from("192.0.2.1"))
	if p := w.problem(a, http.StatusUnauthorized, api.CodeInvalidCredentials); !strings.Contains(p.Detail, "no list") ||
		a.Header.Get("WWW-Authenticate") != `Bearer realm="forebay"` {
		t.Errorf("%s %v", a.body, a.Header)
	}
	if keys := w.rdb.Keys(t.Context(), jobs.KeyPrefix(w.backend)+"mine:*").Val(); len(keys) != 0 {
		t.Errorf("lists that nobody can ask for: %v", keys)
	}
}

// An Idempotency-Key repeats the job in every process, and nobody can tell the id from the outside.
func TestAnIdempotencyKeyWithoutAnAPIKeyMakesAnIDThatCantBeGuessed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	replica := *w
	replica.config.enter.Secret = jobs.NewSecret(w.rdb) // of another process
	_, replica.url, _ = replica.serve()
	home := from("192.0.2.1")
	first := w.job(w.want(w.submit(w.plain, `1`, home, idempotent("order-1")), http.StatusAccepted)).ID
	if !jobs.Random(first) || first == jobs.DeriveID(w.backend, "ip:192.0.2.1", w.plain, "order-1") {
		t.Errorf("%s can be derived by anybody", first)
	}
	for _, process := range []*world{w, &replica} {
		a := process.want(process.submit(w.plain, `1`, home, idempotent("order-1")), http.StatusAccepted)
		if got := process.job(a).ID; got != first || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %s, want %s; %v", got, first, a.Header)
		}
		process.problem(process.submit(w.plain, `2`, home, idempotent("order-1")), 422, api.CodeKeyReuse)
	}
	if got := w.job(w.submit(w.plain, `1`, from("192.0.2.2"), idempotent("order-1"))).ID; got == first {
		t.Error("another address's key makes the same job")
	}
}

// Strangers behind one address are no client: with cache.share: client nothing is shared between them, neither a
// stored answer nor a job under way. Where an answer is for all, it's for them too.
func TestStrangersBehindOneAddressShareNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(_ *world, c *worldConfig) {
			for i := range c.enter.Operations[:2] {
				c.enter.Operations[i].Coalesce, c.enter.Operations[i].Overload.FreshFor = true, time.Hour
			}
		}
	})
	nat := from("192.0.2.1")
	one, two := w.job(w.submit(w.report, `1`, nat)), w.job(w.submit(w.report, `1`, nat))
	for _, j := range []api.Job{one, two} {
		w.succeed(j.ID, 200, "text/plain", []byte("private"))
	}
	policies := map[string]degrade.Policy{}
	for _, o := range w.config.enter.Operations {
		policies[o.Name] = o.Overload
	}
	keeper := degrade.NewKeeper(w.cache, policies)
	for operation, text := range map[string]string{w.report: "private", w.shared: "public"} {
		job := jobs.Job{Operation: operation, Client: "ip:192.0.2.1", Tier: "free", Payload: []byte(`1`)}
		if err := keeper.Learn(t.Context(), job, jobs.Meta{Status: 200, ContentType: "text/plain"}, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if a := w.want(w.submit(w.report, `1`, nat), http.StatusAccepted); a.Header.Get("Age") != "" {
		t.Errorf("a stranger's answer: %s", a.body)
	}
	w.problem(w.submit(w.report, `1`, nat, field("Cache-Control", "only-if-cached")), http.StatusGatewayTimeout, api.CodeNotCached)
	if a := w.want(w.submit(w.shared, `1`, from("192.0.2.9")), 200); string(a.body) != "public" {
		t.Errorf("an answer for all: %s", a.body)
	}
}
