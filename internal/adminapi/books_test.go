package adminapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

func (w *world) booksNow() (b api.Books) {
	w.Helper()
	strictly(w, "books", w.Want(w.AdminCall("GET", "backends/"+w.Backend+"/books"), 200).Text, &b)
	return b
}

func TestTheBooksAreShownAndBalance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	if b := w.booksNow(); !b.Balanced || b.Outcomes != (api.Outcomes{}) ||
		len(b.Repairs) != len(leaky.RepairKinds) {
		t.Errorf("empty = %+v", b)
	}
	w.failed(w.Plain, jobs.CodeBackendStatus, key(keyA))
	w.Succeed(w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID, 200, "", nil)
	w.Start(w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID)
	w.Pause()
	for range 2 {
		w.Submit(w.Plain, `1`, key(keyB))
	}
	b := w.booksNow()
	if b.Backend != w.Backend || time.Since(b.At.Time).Abs() > time.Minute || !b.Balanced ||
		b.Difference != 0 || b.Waiting != 2 || b.Delayed != 0 ||
		b.InFlight != 1 || b.FailedListed != 1 ||
		b.Outcomes != (api.Outcomes{Accepted: 5, Succeeded: 1, Failed: 1, Started: 3}) {
		t.Errorf("books = %+v", b)
	}
	for _, kind := range leaky.RepairKinds {
		if n, there := b.Repairs[kind]; !there || n != 0 {
			t.Errorf("repairs = %v", b.Repairs)
		}
	}
	w.Problem(w.AdminCall("GET", "backends/nope/books"), http.StatusNotFound,
		api.CodeUnknownBackend)
}

func TestBooksThatDoNotBalanceSaySoUntilTheyAreRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Pause()
	for range 3 {
		w.Submit(w.Plain, `1`, key(keyA))
	}
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	// A job whose keys are gone, and a count that nothing stands for.
	if err := w.Redis.Del(t.Context(), jobs.RecordKey(w.Backend, id)).Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.Redis.HIncrBy(t.Context(), jobs.KeyPrefix(w.Backend)+"books", "accepted",
		2).Err(); err != nil {
		t.Fatal(err)
	}
	if b := w.booksNow(); b.Balanced || b.Difference != 2 {
		t.Errorf("broken = %+v", b)
	}
	for round := false; !round; {
		done, err := w.Line.Reconcile(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		round = done.Round
	}
	b := w.booksNow()
	if !b.Balanced || b.Outcomes.Lost != 3 || b.Repairs[leaky.NoRecord] != 1 ||
		b.Repairs[leaky.WrongSum] == 0 || b.Waiting != 3 {
		t.Errorf("repaired = %+v", b)
	}
}
