package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/httpapi"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// walk lists all of a caller's jobs, page by page.
func (w *world) walk(query string, caller [2]string) (ids []string) {
	w.Helper()
	cursor := ""
	query, from, given := strings.Cut(query, "cursor=")
	if given {
		cursor = "&cursor=" + from
	}
	for range 1000 {
		page := w.ownJobs("?"+strings.Trim(query, "&")+cursor, caller)
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if page.NextCursor == "" {
			return ids
		}
		cursor = "&cursor=" + page.NextCursor
	}
	w.Fatal("the list has no end")
	return nil
}

// second gives the world another backend, with operation inner on it.
func (w *world) second() *leaky.Line {
	w.Helper()
	settings := w.Line.Settings()
	settings.Backend = redistest.Name(w, "second")
	line := leaky.New(w.Redis, settings).Limited(limits.Script{})
	w.Config.Lines[settings.Backend] = line
	w.Config.Operation(w.Inner).Backend = settings.Backend
	w.Server, w.URL, w.Admin = w.Serve()
	w.Cleanup(func() { redistest.CheckBooks(w, w.Redis, settings.Backend) })
	return line
}

func TestACallersJobsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.second()
	if page := w.ownJobs("", key(keyA)); len(page.Jobs) != 0 || page.NextCursor != "" {
		t.Errorf("of nobody's jobs: %+v", page)
	}
	var own []string
	for i := range 23 {
		own = append(own,
			w.Job(w.Want(w.Submit([]string{w.Plain, w.Inner, w.Report}[i%3], `1`, key(keyA)),
				http.StatusAccepted)).ID)
		w.Want(w.Submit(w.Plain, `1`, key(keyB)), http.StatusAccepted)
		w.Want(w.Submit(w.Plain, `1`, from("192.0.2.1")), http.StatusAccepted)
	}
	slices.Reverse(own)
	for _, limit := range []int{1, 2, 7, 23, 50, 200} {
		if got := w.walk(fmt.Sprintf("limit=%d", limit), key(keyA)); !slices.Equal(got, own) {
			t.Errorf("in pages of %d: %v\nwant %v", limit, got, own)
		}
	}
	w.Problem(w.Get("/v1/jobs", key("unknown")), http.StatusUnauthorized,
		api.CodeInvalidCredentials)
	// Asking is no decision, and is answered like any other question.
	a := w.Want(w.Get("/v1/jobs?limit=1", key(keyA)), 200)
	w.says(a, map[string]string{"Forebay-Decision": "", "Cache-Control": "no-store"})
	w.says(w.Get("/v1/jobs?limit=0", key(keyA)), map[string]string{"Forebay-Decision": ""})
	w.Want(w.Call("HEAD", w.URL+"/v1/jobs", "", key(keyA)), 200)
}

// Jobs that came at one moment, with ids in no order, are each listed once, whatever the size of a
// page.
func TestJobsThatCameTogetherAreEachListedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.second()
	const crowd = 60
	var all sync.WaitGroup
	own := make([]string, crowd)
	for i := range own {
		all.Go(func() {
			a, err := w.Persist("POST", w.URL+"/v1/jobs",
				`{"operation":"`+[]string{w.Plain, w.Inner}[i%2]+`","payload":1}`, key(keyA),
				field("Idempotency-Key", fmt.Sprint(i)))
			if err != nil || a.StatusCode != http.StatusAccepted {
				t.Errorf("%v %v", a.Status, err)
				return
			}
			own[i] = w.Job(a).ID
		})
	}
	all.Wait()
	slices.Sort(own)
	for _, limit := range []int{1, 2, 3, 7, 50, 200} {
		got := w.walk(fmt.Sprintf("limit=%d", limit), key(keyA))
		if slices.Sort(got); !slices.Equal(got, own) {
			t.Errorf("in pages of %d: %d jobs, %d of them different; want %d", limit, len(got),
				len(slices.Compact(slices.Clone(got))), crowd)
		}
	}
}

// If one backend has looked at all jobs that it may and found nothing, later finds of others have
// to wait.
func TestAListWaitsForTheBackendThatIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.second()
	var own, purged []string
	for i := range 30 {
		gone := i >= 10 // all on one backend, and newer than all on the other
		operation := w.Plain
		if !gone && i%2 == 0 {
			operation = w.Inner
		}
		id := w.Job(w.Want(w.Submit(operation, `1`, key(keyA)), http.StatusAccepted)).ID
		if gone {
			purged = append(purged, id)
		} else {
			own = append(own, id)
		}
	}
	for _, id := range purged {
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)), 200)
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), 204)
	}
	slices.Reverse(own)
	for _, limit := range []int{1, 2, 3, 5, 50} {
		if got := w.walk(fmt.Sprintf("limit=%d", limit), key(keyA)); !slices.Equal(got, own) {
			t.Errorf("in pages of %d: %v\nwant %v", limit, got, own)
		}
	}
}

// A cursor stands while jobs come and go.
func TestAListsCursorIsStable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.second()
	var own []string
	for i := range 10 {
		own = append(own,
			w.Job(w.Want(w.Submit([]string{w.Plain, w.Inner}[i%2], `1`, key(keyA)),
				http.StatusAccepted)).ID)
	}
	slices.Reverse(own)
	page := w.ownJobs("?limit=4", key(keyA))
	last := page.Jobs[3].ID
	// The job that the cursor names goes, and one after it; new ones come.
	for _, id := range []string{last, own[5]} {
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id, "", key(keyA)), 200)
		w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+id+"?purge=1", "", key(keyA)), 204)
	}
	w.Want(w.Submit(w.Plain, `1`, key(keyA)), http.StatusAccepted)
	want := []string{own[4], own[6], own[7], own[8], own[9]}
	if got := w.walk("limit=2&cursor="+page.NextCursor, key(keyA)); !slices.Equal(got, want) {
		t.Errorf("behind the cursor: %v\nwant %v", got, want)
	}
}

func TestAListIsFiltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := func(a answer) string { return w.Job(w.Want(a, http.StatusAccepted)).ID }
	succeeded := id(w.Submit(w.Plain, `1`, key(keyA)))
	w.Succeed(succeeded, 200, "text/plain", nil)
	running := id(w.Submit(w.Report, `1`, key(keyA)))
	w.Start(running)
	w.Pause()
	queued := id(w.Submit(w.Plain, `1`, key(keyA)))
	canceled := id(w.Submit(w.Report, `1`, key(keyA)))
	w.Want(w.Call("DELETE", w.URL+"/v1/jobs/"+canceled, "", key(keyA)), 200)
	for query, want := range map[string][]string{
		"": {canceled, queued, running, succeeded}, "status=queued": {queued},
		"status=running": {running}, "status=succeeded": {succeeded},
		"status=canceled": {canceled}, "status=failed": nil, "status=expired": nil,
		"operation=" + w.Report:                     {canceled, running},
		"operation=" + w.Report + "&status=running": {running}, "operation=other": nil,
	} {
		for _, limit := range []string{"&limit=1", "&limit=50"} {
			if got := w.walk(query+limit, key(keyA)); !slices.Equal(got, want) {
				t.Errorf("%s%s: %v, want %v", query, limit, got, want)
			}
		}
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, query := range []string{"status=waiting", "status=", "limit=0", "limit=201", "limit=x",
		"limit=-1", "cursor=x", "cursor=" + encode("x"),
		"cursor=" + encode("1 x"), "cursor=" + encode("-1 "+queued),
		"cursor=" + encode("1 "+httpapi.UUIDOf(queued)), "client=" + w.ClientA(), "backend=x",
		"status=queued&status=running", "%"} {
		w.Problem(w.Get("/v1/jobs?"+query, key(keyA)), http.StatusBadRequest,
			api.CodeInvalidRequest)
	}
	w.Store.Down.Store(true)
	w.Problem(w.Get("/v1/jobs", key(keyA)), http.StatusServiceUnavailable, api.CodeStore)
}

// Each caller lists its own subscription to a job.
func TestSharesAreListedAsTheCallersOwn(t *testing.T) {
	t.Parallel()
	w := coalescing(t, nil)
	a := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyA)), http.StatusAccepted)).ID
	b := w.Job(w.Want(w.Submit(w.Shared, `1`, key(keyB)), http.StatusAccepted)).ID
	if got := w.walk("", key(keyA)); !slices.Equal(got, []string{a}) {
		t.Errorf("A's: %v, want %s", got, a)
	}
	if got := w.walk("", key(keyB)); !slices.Equal(got, []string{b}) {
		t.Errorf("B's: %v, want %s", got, b)
	}
}

func TestAJobThatHasEndedIsPurged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusAccepted)).ID
	url := w.URL + "/v1/jobs/" + id
	purge := func(caller [2]string) answer { return w.Call("DELETE", url+"?purge=1", "", caller) }
	w.Problem(purge(key(keyA)), http.StatusConflict, api.CodeNotFinished)
	ticket := w.Start(id)
	w.Problem(purge(key(keyA)), http.StatusConflict, api.CodeNotFinished)
	w.Settle(leaky.Settlement{Ticket: ticket, To: "succeeded", Took: time.Millisecond,
		Body: []byte("secret")})
	// Not by another client, and not by mistake.
	w.Problem(purge(key(keyB)), http.StatusNotFound, api.CodeUnknownJob)
	w.Problem(purge(from("192.0.2.1")), http.StatusNotFound, api.CodeUnknownJob)
	for _, query := range []string{"?purge=true", "?purge=0", "?purge", "?purged=1",
		"?purge=1&purge=1"} {
		w.Problem(w.Call("DELETE", url+query, "", key(keyA)), http.StatusBadRequest,
			api.CodeInvalidRequest)
	}
	a := w.Want(purge(key(keyA)), http.StatusNoContent)
	if len(a.Text) != 0 {
		t.Errorf("body %q", a.Text)
	}
	for _, gone := range []answer{w.Get("/v1/jobs/"+id, key(keyA)),
		w.Get("/v1/jobs/"+id+"/result", key(keyA)), w.Call("DELETE", url, "", key(keyA)),
		purge(key(keyA))} {
		w.Problem(gone, http.StatusGone, api.CodeJobGone)
	}
	for _, caller := range [][2]string{key(keyB), from("192.0.2.1")} {
		for _, unknown := range []answer{w.Get("/v1/jobs/"+id, caller),
			w.Get("/v1/jobs/"+id+"/result", caller), w.Call("DELETE", url, "", caller),
			purge(caller)} {
			w.Problem(unknown, http.StatusNotFound, api.CodeUnknownJob)
		}
	}
	if got := w.walk("", key(keyA)); len(got) != 0 {
		t.Errorf("listed: %v", got)
	}
	// The key is spent until the job's record would have gone.
	w.Problem(w.Submit(w.Plain, `1`, key(keyA), idempotent("k")), http.StatusGone, api.CodeJobGone)
}
