package httpapi

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/limits"
)

// Case C105.
func TestTheSameKeyIsTheSameJobBeforeAndAfterItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.pro = []limits.Limit{perClient("per-minute", 60, time.Minute)} })
	first := w.want(w.submit(w.plain, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusAccepted)
	if first.Header.Get("Idempotent-Replayed") != "" {
		t.Error("the first is no replay")
	}
	id := w.job(first).ID
	again := w.want(w.submit(w.plain, `{"n":1}`, key(keyA), idempotent(`"k-1"`)), http.StatusAccepted) // quoted: the same key
	if w.job(again).ID != id || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("Location") != "/v1/jobs/"+id {
		t.Errorf("replay = %s %v", again.body, again.Header)
	}
	w.succeed(id, 200, "text/plain", []byte("done"))
	done := w.want(w.submit(w.plain, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusOK)
	if job := w.job(done); job.ID != id || job.Status != api.Succeeded || done.Header.Get("Forebay-Decision") != "accepted" || done.Header.Get("Retry-After") != "" {
		t.Errorf("replay = %s %v", done.body, done.Header)
	}
	if w.count() != 1 {
		t.Errorf("%d jobs, want 1", w.count())
	}
	if got := done.Header.Get("X-RateLimit-Remaining"); got != "59" {
		t.Errorf("remaining %s: replays must not count", got)
	}
}

// Case C102.
func TestAKeyWithAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.want(w.submit(w.plain, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusAccepted)
	for name, payload := range map[string]string{"another payload": `{"n":2}`, "other white space, as documented": `{"n": 1}`} {
		t.Run(name, func(t *testing.T) {
			a := w.submit(w.plain, payload, key(keyA), idempotent("k-1"))
			w.problem(a, http.StatusUnprocessableEntity, api.CodeKeyReuse)
			if got := a.Header.Get("Forebay-Decision"); got != `rejected;reason="idempotency_key_reuse"` {
				t.Errorf("Forebay-Decision: %s", got)
			}
		})
	}
	if w.count() != 1 {
		t.Errorf("%d jobs, want 1", w.count())
	}
	// Another operation, another client: other jobs.
	w.want(w.submit(w.report, `{"n":1}`, key(keyA), idempotent("k-1")), http.StatusAccepted)
	w.want(w.submit(w.plain, `{"n":1}`, key(keyB), idempotent("k-1")), http.StatusAccepted)
	if w.count() != 3 {
		t.Errorf("%d jobs, want 3", w.count())
	}
}

func TestTwinsThatRaceAreOneJobAndOneCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.pro = []limits.Limit{{Name: "bucket", Algorithm: limits.TokenBucket, Per: limits.PerClient, Amount: 100, Window: 366 * 24 * time.Hour}}
	})
	_, second, _ := w.serve()
	var all sync.WaitGroup
	answers := make([]answer, 40)
	for i := range answers {
		all.Go(func() {
			var err error
			if answers[i], err = w.try("POST", []string{w.url, second}[i%2]+"/v1/jobs", `{"operation":"`+w.plain+`","payload":1}`, key(keyA), idempotent("k")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	replays := 0
	for _, a := range answers {
		w.want(a, http.StatusAccepted)
		if w.job(a).ID != w.job(answers[0]).ID {
			t.Errorf("two jobs: %s and %s", a.body, answers[0].body)
		}
		if a.Header.Get("Idempotent-Replayed") == "true" {
			replays++
		}
	}
	if w.count() != 1 || replays != len(answers)-1 {
		t.Errorf("%d jobs and %d replays, want 1 and %d", w.count(), replays, len(answers)-1)
	}
	if got := w.get("/v1/rate-limits", key(keyA)).Header.Get("X-RateLimit-Remaining"); got != "99" {
		t.Errorf("remaining %s, want 99", got)
	}
}

func TestARefusedRequestLeavesItsKeyFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.line.Capacity = 1 })
	blocker := w.job(w.want(w.submit(w.plain, `0`, key(keyB)), http.StatusAccepted))
	w.problem(w.submit(w.plain, `1`, key(keyA), idempotent("k")), http.StatusTooManyRequests, api.CodeLineFull)
	w.start(blocker.ID)
	// Even with another body: nothing was remembered.
	a := w.want(w.submit(w.plain, `2`, key(keyA), idempotent("k")), http.StatusAccepted)
	if a.Header.Get("Idempotent-Replayed") != "" {
		t.Error("a refusal was replayed as a job")
	}
}

func TestACanceledJobsKeyStillNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	job := w.job(w.submit(w.plain, `1`, key(keyA), idempotent("k")))
	w.want(w.call("DELETE", w.url+job.StatusURL, "", key(keyA)), http.StatusOK)
	again := w.job(w.want(w.submit(w.plain, `1`, key(keyA), idempotent("k")), http.StatusOK))
	if again.ID != job.ID || again.Status != api.Canceled {
		t.Errorf("job = %+v", again)
	}
	w.want(w.submit(w.plain, `1`, key(keyA), idempotent("k2")), http.StatusAccepted)
}

func TestAKeyIsSentOnceAndWellFormed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.problem(w.submit(w.plain, `1`, key(keyA), idempotent("a"), idempotent("b")), http.StatusBadRequest, api.CodeInvalidIdempotencyKey)
	w.problem(w.submit(w.plain, `1`, key(keyA), idempotent("a"), idempotent("a")), http.StatusBadRequest, api.CodeInvalidIdempotencyKey)
	w.problem(w.submit(w.plain, `1`, key(keyA), idempotent("a b")), http.StatusBadRequest, api.CodeInvalidIdempotencyKey)
}

func TestIdempotencyKeysParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`8e03978e-40d5-43e8-bc93-6894a57f9324`:   `8e03978e-40d5-43e8-bc93-6894a57f9324`,
		`"8e03978e-40d5-43e8-bc93-6894a57f9324"`: `8e03978e-40d5-43e8-bc93-6894a57f9324`,
		` "a b" `:                                `a b`,
		`"a\"b\\c"`:                              `a"b\c`,
		strings.Repeat("x", 255):                 strings.Repeat("x", 255),
		`A_.:~-9`:                                `A_.:~-9`,
		``:                                       "",
		`""`:                                     "",
		`"`:                                      "",
		`"a`:                                     "",
		`a"`:                                     "",
		`"a"b`:                                   "",
		`"a";p=1`:                                "",
		`"a\b"`:                                  "",
		`"a\`:                                    "",
		"\"a\tb\"":                               "",
		`"ü"`:                                    "",
		`ü`:                                      "",
		`a,b`:                                    "",
		`a/b`:                                    "",
		strings.Repeat("x", 256):                 "",
		`"` + strings.Repeat(`\"`, 256) + `"`:    "",
	} {
		key, ok := parseIdempotencyKey(line)
		if ok != (want != "") || ok && key != want {
			t.Errorf("%.40q: %q, %v, want %q", line, key, ok, want)
		}
	}
}

// Issue 10, point 12: the key of a job that was purged makes no second job, which the backend would know by the same id: neither with the same
// payload nor with another, alone or in a shared job.
func TestAPurgedJobsKeyIsSpent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.adjust = func(w *world, c *worldConfig) { c.operation(w.shared).Coalesce = true }
	})
	for _, operation := range []string{w.plain, w.shared} {
		id := w.job(w.want(w.submit(operation, `1`, key(keyA), idempotent("k")), http.StatusAccepted)).ID
		look, err := w.line.Look(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		w.succeed(look.Job.Source(), 200, "text/plain", []byte("done"))
		w.want(w.call("DELETE", w.url+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), http.StatusNoContent)
		before := w.count()
		for _, payload := range []string{`1`, `2`} {
			w.problem(w.submit(operation, payload, key(keyA), idempotent("k")), http.StatusGone, api.CodeJobGone)
		}
		if n := w.count() - before; n != 0 {
			t.Errorf("%d more jobs", n)
		}
		w.want(w.submit(operation, `1`, key(keyB), idempotent("k")), http.StatusAccepted) // another client's is another
	}
}
