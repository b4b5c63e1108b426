package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
)

// Callers without a key may share an address and are strangers all the same: a job is seen,
// fetched, canceled and purged by the bearer of its id, wherever it asks from (C99), and by no
// client that has a key.
func TestAJobWithoutAKeyIsItsBearers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	home, roaming := from("192.0.2.1"), from("198.51.100.7")
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, home), http.StatusAccepted)).ID
	if !jobs.Random(id) {
		t.Errorf("%s can be guessed", id)
	}
	path := "/v1/jobs/" + id
	for _, caller := range [][2]string{home, roaming} {
		w.Want(w.Get(path, caller), 200)
	}
	w.Problem(w.Get(path, key(keyA), home), http.StatusNotFound, api.CodeUnknownJob)
	w.Problem(w.Call("DELETE", w.URL+path, "", key(keyA), home), http.StatusNotFound,
		api.CodeUnknownJob)
	w.Succeed(id, 200, "text/plain", []byte("done"))
	w.Want(w.Get(path+"/result", roaming), 200)
	w.Problem(w.Get(path+"/result", key(keyA), home), http.StatusNotFound, api.CodeUnknownJob)
	w.Want(w.Call("DELETE", w.URL+path+"?purge=1", "", roaming), http.StatusNoContent)
	for _, caller := range [][2]string{home, roaming} {
		w.Problem(w.Get(path, caller), http.StatusGone, api.CodeJobGone)
	}
	w.Problem(w.Get(path, key(keyA), home), http.StatusNotFound, api.CodeUnknownJob)

	other := w.Job(w.Submit(w.Plain, `1`, home)).ID
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+other, "", roaming), 200)

	// A client's job is not its bearer's.
	mine := "/v1/jobs/" + w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Problem(w.Get(mine, home), http.StatusNotFound, api.CodeUnknownJob)
	w.Problem(w.Get(mine, key(keyB)), http.StatusNotFound, api.CodeUnknownJob)
	w.Want(w.Get(mine, key(keyA), roaming), 200)
}

// Jobs that were accepted before ids were random stay their address's.
func TestAJobWithAnOldIDStillNeedsItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := jobs.DeriveID(w.Backend, "ip:192.0.2.1", w.Plain, "order-1")
	_, err := w.Line.Offer(t.Context(),
		leaky.Offer{Job: jobs.Job{ID: id, Operation: w.Plain, Client: "ip:192.0.2.1", Tier: "free",
			Priority: jobs.Normal, Payload: []byte(`1`)}, Weight: 1, MaxAge: time.Hour,
			Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w.Want(w.Get("/v1/jobs/"+id, from("192.0.2.1")), 200)
	w.Problem(w.Get("/v1/jobs/"+id, from("192.0.2.2")), http.StatusNotFound, api.CodeUnknownJob)
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", from("192.0.2.1")), 200)
}

func TestCallersWithoutAKeyHaveNoList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Want(w.Submit(w.Plain, `1`, from("192.0.2.1")), http.StatusAccepted)
	a := w.Get("/v1/jobs", from("192.0.2.1"))
	if p := w.Problem(a, http.StatusUnauthorized,
		api.CodeInvalidCredentials); !strings.Contains(p.Detail, "no list") ||
		a.Header.Get("WWW-Authenticate") != `Bearer realm="forebay"` {
		t.Errorf("%s %v", a.Text, a.Header)
	}
	if keys := w.Redis.Keys(t.Context(), jobs.KeyPrefix(w.Backend)+"mine:*").Val(); len(keys) != 0 {
		t.Errorf("lists that nobody can ask for: %v", keys)
	}
}

// An Idempotency-Key gives the same job in every process, and the id can't be computed from
// outside.
func TestAnIdempotencyKeyWithoutAnAPIKeyMakesAnIDThatCantBeGuessed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	replica := *w.World
	replica.Config.Enter.Secret = jobs.NewSecret(w.Redis) // of another process
	_, replica.URL, _ = replica.Serve()
	home := from("192.0.2.1")
	first := w.Job(w.Want(w.Submit(w.Plain, `1`, home, idempotent("order-1")),
		http.StatusAccepted)).ID
	if !jobs.Random(first) ||
		first == jobs.DeriveID(w.Backend, "ip:192.0.2.1", w.Plain, "order-1") {
		t.Errorf("%s can be derived by anybody", first)
	}
	for _, process := range []*testforebay.World{w.World, &replica} {
		a := process.Want(process.Submit(w.Plain, `1`, home, idempotent("order-1")),
			http.StatusAccepted)
		if got := process.Job(a).ID; got != first || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %s, want %s; %v", got, first, a.Header)
		}
		process.Problem(process.Submit(w.Plain, `2`, home, idempotent("order-1")), 422,
			api.CodeKeyReuse)
	}
	if got := w.Job(w.Submit(w.Plain, `1`, from("192.0.2.2"),
		idempotent("order-1"))).ID; got == first {
		t.Error("another address's key makes the same job")
	}
}

// Strangers behind one address are no client: with cache.share: client nothing is shared between
// them, neither a stored answer nor a job under way. Where an answer is for all, it's for them too.
func TestStrangersBehindOneAddressShareNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Adjust = func(_ *testforebay.World, c *testforebay.Config) {
			for i := range c.Enter.Operations[:2] {
				c.Enter.Operations[i].Coalesce, c.Enter.Operations[i].Overload.FreshFor = true,
					time.Hour
			}
		}
	})
	nat := from("192.0.2.1")
	one, two := w.Job(w.Submit(w.Report, `1`, nat)), w.Job(w.Submit(w.Report, `1`, nat))
	for _, j := range []api.Job{one, two} {
		w.Succeed(j.ID, 200, "text/plain", []byte("private"))
	}
	policies := map[string]degrade.Policy{}
	for _, o := range w.Config.Enter.Operations {
		policies[o.Name] = o.Overload
	}
	keeper := degrade.NewKeeper(w.Cache, policies)
	for operation, text := range map[string]string{w.Report: "private", w.Shared: "public"} {
		job := jobs.Job{Operation: operation, Client: "ip:192.0.2.1", Tier: "free",
			Payload: []byte(`1`)}
		if err := keeper.Learn(t.Context(), job, jobs.Meta{Status: 200, ContentType: "text/plain"},
			[]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if a := w.Want(w.Submit(w.Report, `1`, nat), http.StatusAccepted); a.Header.Get("Age") != "" {
		t.Errorf("a stranger's answer: %s", a.Text)
	}
	w.Problem(w.Submit(w.Report, `1`, nat, field("Cache-Control", "only-if-cached")),
		http.StatusGatewayTimeout, api.CodeNotCached)
	if a := w.Want(w.Submit(w.Shared, `1`, from("192.0.2.9")), 200); string(a.Text) != "public" {
		t.Errorf("an answer for all: %s", a.Text)
	}
}
