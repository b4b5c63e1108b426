package adminapi

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// Bounds of a page of jobs. A request looks at leaky.MaxWork of them, on all backends together. A
// call that finds an empty list takes Redis as long as callWork of them, so that there are at most
// maxListCalls.
const (
	maxListCalls = 20
	callWork     = leaky.MaxWork / maxListCalls
)

// listable are the words for a status and the states that each is listed by. Jobs that ended and
// haven't failed are in no list. A state "" is all of leaky's lists, in its order.
var listable = map[string][]string{
	"":                    {""},
	api.Queued:            {string(jobs.Waiting), string(jobs.Delayed), string(jobs.Released)},
	string(jobs.Waiting):  {string(jobs.Waiting)},
	string(jobs.Delayed):  {string(jobs.Delayed)},
	string(jobs.Released): {string(jobs.Released)},
	api.Running:           {string(jobs.Running)},
	api.Failed:            {string(jobs.Failed)},
}

// listJobs answers GET /admin/v1/jobs.
func (s *Server) listJobs(c *web.Call) error {
	l, err := s.parseListing(c.R.URL.RawQuery)
	if err != nil {
		return err
	}
	leave, err := s.listTurn(c)
	if err != nil {
		return err
	}
	defer leave()
	found, err := l.page(c, s.Lines)
	if err != nil {
		return err
	}
	answer := api.AdminJobs{Jobs: []api.AdminJob{}}
	now := time.Now()
	for _, look := range found {
		answer.Jobs = append(answer.Jobs, jobview.ForOperator(look, now))
	}
	answer.NextCursor = l.next()
	return c.JSON(http.StatusOK, answer)
}

// walk goes over the lists of several backends, one after the other.
type walk struct {
	backends []string // sorted
	lists    []string // of each backend, in their order

	place // where it goes on
}

// place is a position in a list of a backend. As a text it is the cursor of an answer.
type place struct {
	backend string // "": after the last
	list    string
	cursor  string // the list's own; "": at its beginning
}

func (p place) end() bool { return p.backend == "" }

func (p place) String() string { return web.Cursor(p.backend, p.list, p.cursor) }

// next is next_cursor of an answer.
func (w *walk) next() *string {
	if w.end() {
		return nil
	}
	next := w.String()
	return &next
}

// begin goes to a cursor, which must be of the same backends and lists; with "" to the beginning.
func (w *walk) begin(cursor string) error {
	if cursor == "" {
		if len(w.backends) > 0 {
			w.place = place{backend: w.backends[0], list: w.lists[0]}
		}
		return nil
	}
	fields, err := web.ParseCursor(cursor, 3)
	if err != nil {
		return err
	}
	w.place = place{backend: fields[0], list: fields[1], cursor: fields[2]}
	if !slices.Contains(w.backends, w.backend) || !slices.Contains(w.lists, w.list) {
		return web.WrongCursor()
	}
	return nil
}

// moved goes on at a list's own cursor; with "" at the beginning of the next list.
func (w *walk) moved(cursor string) {
	if w.cursor = cursor; cursor != "" {
		return
	}
	if i := slices.Index(w.lists, w.list) + 1; i < len(w.lists) {
		w.list = w.lists[i]
		return
	}
	w.list = w.lists[0]
	if i := slices.Index(w.backends, w.backend) + 1; i < len(w.backends) {
		w.backend = w.backends[i]
		return
	}
	w.place = place{}
}

// walkOver is a walk over the named backend's lists, or with "" over those of all backends, from
// its beginning.
func (s *Server) walkOver(backend string, lists ...string) (walk, error) {
	w := walk{backends: slices.Sorted(maps.Keys(s.Lines)), lists: lists}
	if backend != "" {
		if s.Lines[backend] == nil {
			return w, unknownBackend(backend)
		}
		w.backends = []string{backend}
	}
	return w, nil
}

// listing is a walk over the jobs that match.
type listing struct {
	walk
	client, operation, code string // "": any
	limit                   int
}

func (s *Server) parseListing(raw string) (*listing, error) {
	asked, err := web.ParseQuery(raw, "backend", "status", "client", "operation", "code", "cursor",
		"limit")
	if err != nil {
		return nil, err
	}
	lists, known := listable[asked["status"]]
	if !known {
		return nil, web.InvalidRequest("Jobs are listed by status queued (or waiting, delayed, " +
			"released), running or failed. Those that ended otherwise are found by their id alone.")
	}
	l := &listing{client: asked["client"], operation: asked["operation"], code: asked["code"]}
	if l.walk, err = s.walkOver(asked["backend"], lists...); err != nil {
		return nil, err
	}
	if l.code != "" && asked["status"] != api.Failed {
		return nil, web.InvalidRequest("Jobs are listed by code together with status=failed.")
	}
	if l.limit, err = web.PageLimit(asked["limit"], leaky.MaxPage); err != nil {
		return nil, err
	}
	return l, l.begin(asked["cursor"])
}

// page reads the next jobs, at most l.limit, and moves l behind them.
func (l *listing) page(c *web.Call, lines map[string]Line) ([]leaky.Look, error) {
	var found []leaky.Look
	for work := leaky.MaxWork; work > 0 && !l.end() && len(found) < l.limit; {
		part, err := lines[l.backend].List(c.Ctx, leaky.ListFilter{State: jobs.State(l.list),
			Client: l.client, Operation: l.operation, Code: l.code, Cursor: l.cursor,
			Limit: l.limit - len(found), Work: work})
		if errors.Is(err, leaky.ErrCursor) {
			return nil, web.WrongCursor()
		}
		if err != nil {
			return nil, web.StoreError(err)
		}
		found = append(found, part.Jobs...)
		work -= max(callWork, part.Work)
		l.moved(part.Next)
	}
	return found, nil
}
