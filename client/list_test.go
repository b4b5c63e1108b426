package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/forebay/forebay/api"
)

// pages returns a stub that answers with the given pages, whose cursors are c1, c2 and so on.
func pages(pages ...[]string) *stub {
	return &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
		at := 0
		fmt.Sscanf(r.URL.Query().Get("cursor"), "c%d", &at)
		var bodies []string
		for _, id := range pages[at] {
			bodies = append(bodies, queued(id))
		}
		next := ""
		if at+1 < len(pages) {
			next = fmt.Sprintf(`,"next_cursor":"c%d"`, at+1)
		}
		return reply(200, `{"jobs":[`+strings.Join(bodies, ",")+`]`+next+`}`), nil
	}}
}

// collect returns the ids of an iteration, and its error.
func collect(t *testing.T, c *Client, list List) (ids []string, err error) {
	t.Helper()
	for job, failed := range c.Jobs(t.Context(), list) {
		if err != nil || failed != nil && job.ID != "" {
			t.Errorf("%+v and %v, after %v", job, failed, err)
		}
		if err = failed; err == nil {
			ids = append(ids, job.ID)
		}
	}
	return ids, err
}

func TestAListIsReadPageByPage(t *testing.T) {
	t.Parallel()
	// one of them empty
	s := pages([]string{"b-5", "b-4"}, nil, []string{"b-3"}, []string{"b-2", "b-1"})
	c := over(t, s, Config{})
	ids, err := collect(t, c, List{Status: api.Queued, Operation: "monthly-report", Limit: 2})
	if err != nil || !slices.Equal(ids, []string{"b-5", "b-4", "b-3", "b-2", "b-1"}) {
		t.Errorf("%v, %v", ids, err)
	}
	var asked []string
	for _, r := range s.seen {
		asked = append(asked, r.Method+" "+r.URL.RequestURI())
	}
	want := []string{"GET /v1/jobs?limit=2&operation=monthly-report&status=queued"}
	for _, cursor := range []string{"c1", "c2", "c3"} {
		want = append(want,
			"GET /v1/jobs?cursor="+cursor+"&limit=2&operation=monthly-report&status=queued")
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
	// From a stored cursor, twice by the same iterator.
	rest := c.Jobs(t.Context(), List{Cursor: "c2"})
	for range 2 {
		var ids []string
		for job, err := range rest {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, job.ID)
		}
		if !slices.Equal(ids, []string{"b-3", "b-2", "b-1"}) {
			t.Errorf("from c2: %v", ids)
		}
	}
}

func TestAPageIsFetchedWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	s := pages([]string{"b-3", "b-2"}, []string{"b-1"})
	for range over(t, s, Config{}).Jobs(t.Context(), List{}) {
		break
	}
	if len(s.seen) != 1 || s.seen[0].URL.RequestURI() != "/v1/jobs" {
		t.Errorf("%d requests, the first for %s", len(s.seen), s.seen[0].URL)
	}
	page, err := over(t, s, Config{}).List(t.Context(), List{Cursor: "c1"})
	if err != nil || len(page.Jobs) != 1 || page.NextCursor != "" {
		t.Errorf("%+v, %v", page, err)
	}
}

// A server may stop before it has found a job: the client continues.
func TestAPageWithoutJobsIsTheLast(t *testing.T) {
	t.Parallel()
	s := pages(nil, nil, nil, []string{"b-2"}, nil, nil)
	page, err := over(t, s, Config{}).List(t.Context(), List{Status: api.Failed})
	if err != nil || len(page.Jobs) != 1 || page.NextCursor != "c4" || len(s.seen) != 4 {
		t.Errorf("%+v, %v after %d requests", page, err, len(s.seen))
	}
	page, err = over(t, s, Config{}).List(t.Context(), List{Status: api.Failed, Cursor: "c4"})
	if err != nil || len(page.Jobs) != 0 || page.NextCursor != "" {
		t.Errorf("%+v, %v", page, err)
	}
}

// A page that fails is fetched again. One that never comes ends the list after the jobs before it.
func TestAListEndsWithAnErrorWhereItBroke(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		good := pages([]string{"b-2"}, []string{"b-1"})
		s := &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			if n == 2 {
				return refuse(503, api.CodeStore, "1"), nil
			}
			return good.answer(n, r)
		}}
		ids, err := collect(t, over(t, s, Config{}), List{})
		if err != nil || len(ids) != 2 || len(s.seen) != 3 {
			t.Errorf("%v, %v", ids, err)
		}
		s = &stub{answer: func(n int, r *http.Request) (*http.Response, error) {
			if n > 1 {
				return refuse(400, api.CodeInvalidRequest, ""), nil
			}
			return good.answer(n, r)
		}}
		var e *Error
		ids, err = collect(t, over(t, s, Config{}), List{})
		if !errors.As(err, &e) || e.Code != api.CodeInvalidRequest || len(ids) != 1 {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

func TestAMalformedListIsForeign(t *testing.T) {
	t.Parallel()
	// The last one would never end.
	for _, body := range []string{
		"", "<html>", "{}", `{"jobs":7}`, `{"jobs":[],"next_cursor":"c1"}`,
	} {
		s := one(200, body)
		ids, err := collect(t, over(t, s, Config{}), List{Cursor: "c1"})
		if !errors.Is(err, errForeign) || ids != nil || len(s.seen) != 1 {
			t.Errorf("%q: %v, %v", body, ids, err)
		}
	}
}
