package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/store"
	"github.com/forebay/forebay/internal/testforebay"
)

// later makes a call and hands on its answer.
func (w *world) later(call func() answer) <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- call() }()
	return answers
}

// held waits until so many answers of a kind are held back.
func (w *world) held(kind string, n int) {
	w.Helper()
	w.Eventually(fmt.Sprintf("%d of kind %s are held back", n, kind),
		func() bool { return w.Server.HeldAnswers(kind) == n })
}

func (w *world) soon(answers <-chan answer) answer {
	w.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(patience):
		w.Fatal("no answer")
	}
	return answer{}
}

// A client that says which state it knows is notified of the next move, not only of the end.
func TestALongPollEndsWithTheNextMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	poll := func(etag string, wait int) answer {
		return w.Get("/v1/jobs/"+id, key(keyA), field("If-None-Match", etag),
			field("Prefer", fmt.Sprint("wait=", wait)))
	}
	etag := w.Want(w.Get("/v1/jobs/"+id, key(keyA)), 200).Header.Get("ETag")
	answers := w.later(func() answer { return poll(etag, 30) })
	w.held(httpapi.HeldWait, 1)
	ticket := w.Start(id)
	a := w.Want(w.soon(answers), 200)
	if a.Header.Get("Preference-Applied") != "wait=30" || a.Header.Get("ETag") == etag {
		t.Errorf("%v %s", a.Header, a.Text)
	}
	if w.Job(a).Status == api.Queued {
		// It had its slot, which is a move too, and had not yet started.
		a = w.Want(poll(a.Header.Get("ETag"), 30), 200)
	}
	if w.Job(a).Status != api.Running {
		t.Errorf("%s", a.Text)
	}
	running := a.Header.Get("ETag")

	began := time.Now()
	same := w.Want(poll(running, 1), http.StatusNotModified)
	if took := time.Since(began); took < time.Second || same.Header.Get("ETag") != running ||
		same.Header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("304 after %v: %v", took, same.Header)
	}
	began = time.Now()
	w.Want(poll(etag, 30), 200) // what it knows is old
	w.Want(poll(`"x", W/"y"`, 30), 200)

	answers = w.later(func() answer { return poll(`"x", `+running, 30) })
	w.held(httpapi.HeldWait, 1)
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Failed,
		Failure: jobs.Failure{Code: jobs.CodeBackendStatus, Detail: "The backend answered 400."}})
	ended := w.Want(w.soon(answers), 200)
	if w.Job(ended).Status != api.Failed {
		t.Errorf("%s", ended.Text)
	}
	// there is nothing to wait for
	w.Want(poll(ended.Header.Get("ETag"), 30), http.StatusNotModified)
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("answers that were known took %v", took)
	}
}

// A job's way up the line is no move; its position is in the answer at the end of the wait.
func TestALongPollMindsNoPlaceInTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Pause()
	first := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	second := w.Job(w.Submit(w.Plain, `2`, key(keyA))).ID
	etag := w.Want(w.Get("/v1/jobs/"+second, key(keyA)), 200).Header.Get("ETag")
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+first, "", key(keyA)), 200)
	began := time.Now()
	a := w.Want(w.Get("/v1/jobs/"+second, key(keyA), field("If-None-Match", etag),
		field("Prefer", "wait=1")), 200)
	if took := time.Since(began); took < time.Second || w.Job(a).Queue.Position != 1 {
		t.Errorf("after %v: %s", took, a.Text)
	}
}

// The owner of a subscription to a job is notified of the job's moves, and of its subscription's.
func TestAShareIsToldOfItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	share := func(fingerprint string) string {
		t.Helper()
		o := leaky.Offer{Job: jobs.Job{ID: jobs.NewID(w.Backend), Operation: w.Plain,
			Client: w.ClientA(), Tier: "pro", Priority: jobs.Normal, Payload: []byte("1"),
			Fingerprint: fingerprint},
			Weight: 1, MaxAge: time.Hour, Keep: time.Hour, Join: "0123456789abcdef0123456789abcdef"}
		if place, err := w.Line.Offer(context.Background(), o); err != nil ||
			place.Outcome != leaky.Accepted && place.Outcome != leaky.Joined {
			t.Fatalf("%+v, %v", place, err)
		}
		return o.Job.ID
	}
	stays, leaves := share("one"), share("another")
	look, err := w.Line.Look(context.Background(), stays)
	if err != nil || look.Job.Of == "" {
		t.Fatalf("no share: %+v, %v", look, err)
	}
	path := "/v1/jobs/" + stays
	s, other := w.stream(stays, key(keyA)), w.stream(leaves, key(keyA))
	if shown, _ := s.wants("status", api.Queued); shown.ID != stays || shown.StatusURL != path {
		t.Errorf("%+v", shown)
	}
	_, before := other.wants("status", api.Queued)
	answers := w.later(func() answer {
		return w.Get(path, key(keyA), field("Prefer", "wait=30"))
	})
	w.held(httpapi.HeldWait, 1)
	ticket := w.Start(look.Job.Of)
	s.wantsSoon("status", api.Running)
	if _, running := other.wantsSoon("status", api.Running); running <= before {
		t.Errorf("version %d after %d", running, before)
	}
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+leaves, "", key(keyA)), 200)
	other.wants("done", api.Canceled)
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded,
		Result: jobs.Meta{Status: 200, ContentType: "text/plain", Size: 1}, Body: []byte("x")})
	s.wants("done", api.Succeeded)
	if a := w.Want(w.soon(answers), 200); w.Job(a).ID != stays || w.Job(a).Status != api.Succeeded {
		t.Errorf("%s", a.Text)
	}
	if a := w.Want(w.Get(path+"/result", key(keyA)), 200); string(a.Text) != "x" {
		t.Errorf("result: %q", a.Text)
	}
}

// While the listener's connection is broken, messages are missed. No client waits for them in vain.
func TestAnEndThatNobodyHeardIsToldAllTheSame(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	through := redis.NewClient(&redis.Options{Addr: proxy.Addr, MaxRetries: -1,
		DisableIdentity: true})
	t.Cleanup(func() { through.Close() })
	w := newWorld(t, func(s *setup) {
		s.Redis = server.Client(t)
		s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
			w.Finals.Close()
			w.Finals = leaky.Listen(through, []string{w.Backend})
			c.Finals = w.Finals
		}
	})
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	s := w.stream(id, key(keyA))
	s.wants("status", api.Queued)
	answers := w.later(func() answer {
		return w.Get("/v1/jobs/"+id, key(keyA), field("Prefer", "wait=30"))
	})
	w.held(httpapi.HeldWait, 1)
	proxy.Refuse()
	channel := jobs.KeyPrefix(w.Backend) + "final"
	w.Eventually("nobody hears", func() bool {
		n, err := w.Redis.PubSubNumSub(context.Background(), channel).Result()
		return err == nil && n[channel] == 0
	})
	w.Succeed(id, 200, "text/plain", []byte("x"))
	proxy.Resume()
	s.wantsSoon("done", api.Succeeded)
	w.Want(w.soon(answers), 200)
}

// If Redis becomes unavailable during a wait, every client gets the last known state, or a time to
// come back, and none hangs.
func TestALostStoreEndsWaitsWithWhatWasKnown(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*redistest.Proxy){"hangs": (*redistest.Proxy).Hang,
		"is gone": (*redistest.Proxy).Refuse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
			st, err := store.Open(t.Context(), store.Config{URL: proxy.URL()},
				slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { st.Close() })
			w := newWorld(t, func(s *setup) {
				s.Redis = st.Client()
				s.Adjust = func(_ *testforebay.World, c *testforebay.Config) { c.Store = st }
			})
			w.Pause()
			wait := field("Prefer", "wait=30")
			id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
			s := w.stream(id, key(keyA))
			s.wants("status", api.Queued)
			polled := w.later(func() answer { return w.Get("/v1/jobs/"+id, key(keyA), wait) })
			posted := w.later(func() answer { return w.Submit(w.Plain, `2`, key(keyA), wait) })
			w.held(httpapi.HeldWait, 2)
			breaks(proxy)
			began := time.Now()
			if a := w.Want(w.soon(polled), 200); w.Job(a).Status != api.Queued ||
				a.Header.Get("Retry-After") == "" {
				t.Errorf("long poll: %s", a.Text)
			}
			if a := w.Want(w.soon(posted), http.StatusAccepted); w.Job(a).Status != api.Queued ||
				a.Header.Get("Forebay-Decision") != "accepted" {
				t.Errorf("POST: %s", a.Text)
			}
			s.over(true)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the waits ended %v after Redis", took)
			}
			w.Problem(w.Get("/v1/jobs/"+id, key(keyA), wait), http.StatusServiceUnavailable,
				api.CodeStore)

			proxy.Resume()
			w.Eventually("healthy again", st.Healthy)
			answers := w.later(func() answer { return w.Get("/v1/jobs/"+id, key(keyA), wait) })
			w.held(httpapi.HeldWait, 1)
			w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)), 200)
			if a := w.Want(w.soon(answers), 200); w.Job(a).Status != api.Canceled {
				t.Errorf("after the return: %s", a.Text)
			}
		})
	}
}

// No client takes all the room: requests beyond its part are answered at once, or refused.
func TestWhatIsHeldBackIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Pro = []limits.Limit{{Name: "wide", Algorithm: limits.TokenBucket, Per: limits.PerClient,
			Amount: 1000, Window: time.Hour}}
	})
	w.Pause()
	w.Server.BoundHeldAnswers(4, 3, 2, 1, 1)
	idA, idB := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID,
		w.Job(w.Submit(w.Plain, `1`, key(keyB))).ID
	refused := func(id string, caller, how [2]string) {
		t.Helper()
		a := w.Get("/v1/jobs/"+id, caller, how)
		p := w.Problem(a, http.StatusTooManyRequests, api.CodeTooManyStreams)
		if p.RetryAfter < httpapi.FewerFrom || p.RetryAfter > httpapi.FewerTo ||
			a.Header.Get("Retry-After") == "" {
			t.Errorf("%s", a.Text)
		}
	}
	asStream, asPoll := field("Accept", "text/event-stream"), field("Prefer", "wait=30")
	var streams []*stream
	for range 3 {
		streams = append(streams, w.stream(idA, key(keyA)))
	}
	refused(idA, key(keyA), asStream) // its own bound
	refused(idA, key(keyA), asPoll)
	w.Want(w.Get("/v1/jobs/"+idA, key(keyA)), 200)
	a := w.Want(w.Submit(w.Plain, `2`, key(keyA), field("Prefer", "wait=30")), http.StatusAccepted)
	if a.Header.Get("Preference-Applied") != "" || a.Header.Get("RateLimit") == "" {
		t.Errorf("an accepted job that can't be waited for: %v", a.Header)
	}
	answers := w.later(func() answer {
		return w.Get("/v1/jobs/"+idB, key(keyB), field("Prefer", "wait=30"))
	})
	w.held(httpapi.HeldWait, 1)
	refused(idB, key(keyB), asStream) // all clients'
	metrics := w.Want(w.Call("GET", w.Admin+"/metrics", ""), 200).Text
	for _, want := range []string{`forebay_held_answers{kind="stream"} 3`,
		`forebay_held_answers{kind="wait"} 1`} {
		if !strings.Contains(string(metrics), "\n"+want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	streams[0].Body.Close()
	w.held(httpapi.HeldStream, 2)
	w.stream(idB, key(keyB))
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+idB, "", key(keyB)), 200)
	w.Want(w.soon(answers), 200)
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+idA, "", key(keyA)), 200)
	w.held(httpapi.HeldStream, 0)

	// Callers without a key: an address, its network, all of them.
	job := func(address string) string {
		return w.Job(w.Want(w.Submit(w.Plain, `1`, from(address)), 202)).ID
	}
	one, near, far, more := job("192.0.2.1"), job("192.0.2.200"), job("2001:db8:1:2::1"),
		job("2001:db8:2::1")
	first := w.stream(one, from("192.0.2.1"))
	refused(one, from("192.0.2.1"), asPoll)
	refused(near, from("192.0.2.200"), asPoll)
	second := w.stream(far, from("2001:db8:1:2::1"))
	refused(more, from("2001:db8:2::1"), asStream)
	third := w.stream(idA, key(keyA)) // clients with a key have the rest
	for _, s := range []*stream{first, second, third} {
		s.Body.Close()
	}
	w.held(httpapi.HeldStream, 0)
	if n := w.Server.Holders(); n != 0 {
		t.Errorf("%d clients are remembered that hold nothing", n)
	}
}
