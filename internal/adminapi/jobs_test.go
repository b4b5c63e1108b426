package adminapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/adminapi"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/testforebay"
)

// listed are the jobs of one page of a query.
func (w *world) listed(query string) (page api.AdminJobs) {
	w.Helper()
	strictly(w, query, w.Want(w.AdminCall("GET", "jobs?"+query), 200).Text, &page)
	return page
}

func idsOf(page []api.AdminJob) (ids []string) {
	for _, j := range page {
		ids = append(ids, j.ID)
	}
	return ids
}

func fast(s *setup) {
	s.Line.Rate, s.Line.Burst = testforebay.Must(leaky.ParseRate("1000/s")), 1
}

func TestAnOperatorListsEveryClientsJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	submit := func(operation string, fields ...[2]string) string {
		return w.Job(w.Want(w.Submit(operation, `1`, fields...), 202)).ID
	}
	failed := submit(w.Plain, key(keyA))
	w.FailJob(failed, jobs.CodeBackendStatus, 422, "text/plain", []byte("no"))
	lost := submit(w.Plain, key(keyB))
	w.FailJob(lost, jobs.CodeWorkerLost, 0, "", nil)
	delayed := submit(w.Plain, key(keyB))
	w.Settle(leaky.Settlement{Ticket: w.Start(delayed), To: jobs.Delayed, Delay: time.Hour,
		Failure: jobs.Failure{Code: jobs.CodeBackendTimeout}})
	running := submit(w.Report, key(keyB))
	w.Start(running)
	w.Pause()
	waiting := submit(w.Plain, key(keyA))
	anonymous := submit(w.Plain, from("192.0.2.44"))

	for query, want := range map[string][]string{
		"": {waiting, anonymous, delayed, running, lost,
			failed},
		"backend=" + w.Backend: {waiting, anonymous, delayed, running, lost,
			failed},
		"status=queued":                                      {waiting, anonymous, delayed},
		"status=waiting":                                     {waiting, anonymous},
		"status=delayed":                                     {delayed},
		"status=released":                                    nil,
		"status=running":                                     {running},
		"status=failed":                                      {lost, failed},
		"status=failed&code=worker_lost":                     {lost},
		"client=" + w.ClientA():                              {waiting, failed},
		"client=ip:192.0.2.44":                               {anonymous},
		"client=nobody":                                      nil,
		"operation=" + w.Report:                              {running},
		"status=failed&client=" + w.ClientA():                {failed},
		"operation=" + w.Plain + "&status=failed":            {lost, failed},
		"status=waiting&client=" + w.ClientA():               {waiting},
		"status=failed&code=x&operation=" + w.Plain:          nil,
		"backend=" + w.Backend + "&limit=200&status=running": {running},
	} {
		page := w.listed(query)
		if got := idsOf(page.Jobs); !slices.Equal(got, want) || page.NextCursor != nil {
			t.Errorf("%s: %v then %v, want %v", query, got, page.NextCursor, want)
		}
	}
	all := w.listed("").Jobs
	if j := all[1]; j.Client != "ip:192.0.2.44" || j.Tier != "free" || j.Priority != "normal" ||
		j.Backend != w.Backend || j.Status != api.Queued ||
		j.State != "waiting" || j.Queue == nil || j.Queue.Position != 2 ||
		j.Queue.WaitingOn != "paused" || j.Links.Cancel == "" || j.Links.Redrive != "" {
		t.Errorf("waiting = %+v", j)
	}
	if j := all[2]; j.State != "delayed" || j.Failure == nil ||
		j.Failure.Code != jobs.CodeBackendTimeout || j.Queue.NextAttemptAt == nil ||
		j.Attempts != 1 {
		t.Errorf("delayed = %+v", j)
	}
	if j := all[5]; !j.Done || j.Failure == nil || j.Failure.Code != jobs.CodeBackendStatus ||
		j.Answer == nil || j.Answer.Status != 422 || j.Answer.Size != 2 ||
		j.Answer.Body != "" || j.FinishedAt == nil || j.ExpiresAt == nil || j.Links.Redrive == "" ||
		j.Links.Cancel != "" {
		t.Errorf("failed = %+v", j)
	}
}

// secondBackend adds a backend to a world, over the same Redis.
func secondBackend(t *testing.T, s *setup) (second **leaky.Line) {
	second = new(*leaky.Line)
	s.Adjust = func(w *testforebay.World, c *testforebay.Config) {
		settings := w.Line.Settings()
		settings.Backend = redistest.Name(t, "b")
		*second = leaky.New(w.Redis, settings).Limited(limits.Script{})
		c.Lines[settings.Backend] = *second
		t.Cleanup(func() { redistest.CheckBooks(t, w.Redis, settings.Backend) })
	}
	return second
}

func TestPagesHaveEachJobThatStaysOnceWhateverComesAndGoes(t *testing.T) {
	t.Parallel()
	var second **leaky.Line
	w := newWorld(t, func(s *setup) {
		fast(s)
		second = secondBackend(t, s)
	})
	want := map[string]bool{}
	submit := func() string {
		id := w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID
		want[id] = true
		return id
	}
	for range 3 {
		w.FailJob(submit(), jobs.CodeBackendStatus, 0, "", nil)
	}
	w.Start(submit())
	w.Pause()
	for range 5 {
		submit()
	}
	gone := submit()
	other := (*second).Settings().Backend
	for range 4 {
		job := jobs.Job{ID: jobs.NewID(other), Operation: "o", Client: "c", Priority: jobs.Normal,
			Payload: []byte(`1`)}
		if _, err := (*second).Offer(t.Context(),
			leaky.Offer{Job: job, Weight: 1, MaxAge: time.Hour, Keep: time.Hour}); err != nil {
			t.Fatal(err)
		}
		want[job.ID] = true
	}
	for _, query := range []string{"limit=2", "limit=1&status=queued",
		"limit=3&backend=" + w.Backend, "limit=200"} {
		seen, cursor := map[string]int{}, ""
		for pages := 0; ; pages++ {
			if pages > 60 {
				t.Fatalf("%s: the pages have no end", query)
			}
			page := w.listed(query + cursor)
			for _, id := range idsOf(page.Jobs) {
				seen[id]++
			}
			if pages == 0 && gone != "" {
				w.Want(w.AdminCall("DELETE", "jobs/"+gone), 200)
				delete(want, gone)
				gone = ""
			}
			if page.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
		}
		for id := range want {
			meant := !strings.Contains(query, "backend=") || strings.HasPrefix(id, w.Backend)
			if strings.Contains(query, "queued") {
				meant = w.AdminJob(w.AdminCall("GET", "jobs/"+id)).Status == api.Queued
			}
			if n := seen[id]; n != map[bool]int{true: 1}[meant] {
				t.Errorf("%s: job %s was listed %d times", query, id, n)
			}
		}
	}
}

func TestAListThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { secondBackend(t, s) })
	w.Pause()
	for range 3 {
		w.Submit(w.Plain, `1`, key(keyA))
	}
	cursor := *w.listed("limit=1&status=waiting&backend=" + w.Backend).NextCursor
	for _, query := range []string{
		"state=failed", "status=succeeded", "status=canceled", "status=expired", "status=Failed",
		"status=", "client=", "backend=", "cursor=", "limit=",
		"limit=0", "limit=-1", "limit=201", "limit=ten", "limit=1e2", "limit=1&limit=2",
		"code=worker_lost", "code=worker_lost&status=queued", "status=%zz",
		"cursor=x", "cursor=!!", "cursor=" + cursor, "cursor=" + cursor + "&status=failed",
		"cursor=" + cursor + "x&status=waiting",
		"status=waiting&cursor=" + adminapi.Cursor(w.Backend, jobs.Waiting, "MCAx"),
		"status=waiting&cursor=" + adminapi.Cursor("nope", jobs.Waiting, ""),
	} {
		p := w.Problem(w.AdminCall("GET", "jobs?"+query), http.StatusBadRequest,
			api.CodeInvalidRequest)
		if p.Detail == "" {
			t.Errorf("%s: no detail", query)
		}
	}
	w.Problem(w.AdminCall("GET", "jobs?backend=nope"), http.StatusNotFound, api.CodeUnknownBackend)
	if got := w.listed("status=waiting&cursor=" + cursor).Jobs; len(got) != 2 {
		t.Errorf("the cursor leads to %v", got)
	}
	for _, call := range []string{"GET backends", "GET backends/" + w.Backend,
		"GET backends/" + w.Backend + "/books", "POST backends/" + w.Backend + "/redrive",
		"GET jobs/" + jobs.NewID(w.Backend), "DELETE backends/" + w.Backend + "/override"} {
		method, path, _ := strings.Cut(call, " ")
		w.Problem(w.AdminCall(method, path+"?all=true"), http.StatusBadRequest,
			api.CodeInvalidRequest)
	}
}

// However few jobs are found, one page looks at a bounded number, and says where to go on.
func TestOnePageIsABoundedPieceOfWork(t *testing.T) {
	t.Parallel()
	line := &sparseLine{}
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { line.Line = l; return line }
	})
	page := w.listed("status=waiting&client=c")
	if len(page.Jobs) != 0 || page.NextCursor == nil || line.asked != adminapi.MaxListCalls {
		t.Errorf("%+v after %d calls", page, line.asked)
	}
	w.listed("status=waiting&client=c&cursor=" + *page.NextCursor)
	if line.last.Cursor != "more" || line.last.Client != "c" || line.last.State != jobs.Waiting {
		t.Errorf("it went on with %+v", line.last)
	}
}

// sparseLine has many jobs, and none that is meant.
type sparseLine struct {
	testforebay.Line
	asked int
	last  leaky.ListFilter
}

func (l *sparseLine) List(_ context.Context, f leaky.ListFilter) (leaky.Page, error) {
	l.asked++
	l.last = f
	return leaky.Page{Next: "more"}, nil
}

func TestAnOperatorSeesWhyAJobFailedAndWhatTheBackendAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	submit := func() string { return w.Job(w.Want(w.Submit(w.Plain, `1`, key(keyA)), 202)).ID }
	failed := func(code string, status int, contentType string, body []byte) string {
		id := submit()
		w.FailJob(id, code, status, contentType, body)
		return id
	}
	text := failed(jobs.CodeBackendStatus, 422, "text/plain", []byte("no such month"))
	binary := failed(jobs.CodeBackendStatus, 500, "image/png", []byte{0xff, 0})
	large := failed(jobs.CodeBackendStatus, 500, "", bytes.Repeat([]byte("x"), adminapi.MaxShown+1))
	silent := failed(jobs.CodeBackendDown, 0, "", nil)
	fine := submit()
	w.Succeed(fine, 201, "application/json", []byte(`{"a":1}`))

	for id, want := range map[string]*api.KeptAnswer{
		text: {Size: 13,
			BackendAnswer: api.BackendAnswer{Status: 422, ContentType: "text/plain",
				Body: "no such month"}},
		binary: {Size: 2,
			BackendAnswer: api.BackendAnswer{Status: 500, ContentType: "image/png",
				BodyBase64: []byte{0xff, 0}}},
		large:  {Size: adminapi.MaxShown + 1, BackendAnswer: api.BackendAnswer{Status: 500}},
		silent: nil,
		fine: {Size: 7,
			BackendAnswer: api.BackendAnswer{Status: 201, ContentType: "application/json",
				Body: `{"a":1}`}},
	} {
		j := w.AdminJob(w.AdminCall("GET", "jobs/"+id))
		got, _ := json.Marshal(j.Answer)
		if wanted, _ := json.Marshal(want); !bytes.Equal(got, wanted) {
			t.Errorf("answer %s, want %s", got, wanted)
		}
		if (j.Failure == nil) != (id == fine) || j.Failure != nil &&
			j.Failure.Detail != "It went wrong." {
			t.Errorf("failure %+v of %+v", j.Failure, j)
		}
	}
	// Nobody's job, and what is none.
	for _, id := range []string{jobs.NewID(w.Backend), jobs.NewID("nope"), "x", w.Backend} {
		w.Problem(w.AdminCall("GET", "jobs/"+id), http.StatusNotFound, api.CodeUnknownJob)
	}
}

func TestAnOperatorCancelsAnyJobAndTheLogSaysWho(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fast)
	operator := field("Forebay-Operator", "maria")
	running := w.Job(w.Submit(w.Plain, `1`, from("192.0.2.44"))).ID
	ticket := w.Start(running)
	w.Pause()
	waiting := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID

	if j := w.AdminJob(w.AdminCall("DELETE", "jobs/"+waiting,
		operator)); j.Status != api.Canceled || !j.Done {
		t.Errorf("canceled = %+v", j)
	}
	if j := w.Job(w.Want(w.Get("/v1/jobs/"+waiting, key(keyA)), 200)); j.Status != api.Canceled {
		t.Errorf("its client sees %+v", j)
	}
	w.audited(`msg="job canceled"`, "by=maria address=127.0.0.1", "job_id="+waiting, "was=waiting",
		"outcome=canceled")

	a := w.Want(w.AdminCall("DELETE", "jobs/"+running, operator), 202)
	var j api.AdminJob
	if strictly(t, "running", a.Text, &j); j.Status != api.Running || !j.Canceling ||
		a.Header.Get("Retry-After") != "1" {
		t.Errorf("aborting = %+v", j)
	}
	w.audited(`msg="job canceled"`, "by=maria", "job_id="+running, "was=running",
		"outcome=aborting")
	w.Settle(leaky.Settlement{Ticket: ticket, To: jobs.Succeeded, Result: jobs.Meta{Status: 200}})
	if w.AdminJob(w.AdminCall("GET", "jobs/"+running)).Status == api.Succeeded {
		w.Problem(w.AdminCall("DELETE", "jobs/"+running), http.StatusConflict, api.CodeFinished)
	}
	w.Problem(w.AdminCall("DELETE", "jobs/"+jobs.NewID(w.Backend)), http.StatusNotFound,
		api.CodeUnknownJob)
	if n := strings.Count(w.Logs.String(), `msg="job canceled"`); n != 2 {
		t.Errorf("%d lines of audit for two changes", n)
	}
	if strings.Contains(w.Logs.String(), "192.0.2.44") {
		t.Error("a caller's address is in the log")
	}
}

// Case C127, for operators: what they ask for is no label.
func TestWhatOperatorsAskForMintsNoSeries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	noise := func(from int) {
		for i := from; i < from+20; i++ {
			w.AdminCall("GET", fmt.Sprintf("jobs?client=c%d&operation=o%d", i, i))
			w.AdminCall("GET", "jobs/"+jobs.NewID(w.Backend))
			w.AdminCall("DELETE", fmt.Sprintf("jobs/x%d", i))
			w.AdminCall("POST", fmt.Sprintf("jobs/x%d/redrive", i))
			w.AdminCall("GET", fmt.Sprintf("backends/x%d/books", i))
			w.Call("POST", w.Admin+"/admin/v1/backends/"+w.Backend+"/redrive",
				fmt.Sprintf(`{"client":"c%d"}`, i))
		}
	}
	noise(0)
	w.Metrics() // a scrape has series of its own
	before := w.Series()
	noise(20)
	if after := w.Series(); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
}
