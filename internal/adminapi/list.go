package adminapi

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
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
var listable = map[string][]jobs.State{
	"":                    {""},
	api.Queued:            {jobs.Waiting, jobs.Delayed, jobs.Released},
	string(jobs.Waiting):  {jobs.Waiting},
	string(jobs.Delayed):  {jobs.Delayed},
	string(jobs.Released): {jobs.Released},
	api.Running:           {jobs.Running},
	api.Failed:            {jobs.Failed},
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
	if !l.end() {
		next := l.String()
		answer.NextCursor = &next
	}
	return c.JSON(http.StatusOK, answer)
}

// listing is a walk over the lists of several backends, one after the other.
type listing struct {
	backends                []string // sorted
	states                  []jobs.State
	client, operation, code string // "": any
	limit                   int

	place // where it goes on
}

// place is a position in a list of a backend, by leaky's cursor. As a text it is the cursor of an
// answer.
type place struct {
	backend string // "": after the last
	state   jobs.State
	cursor  string // "": at the list's beginning
}

func (p place) end() bool { return p.backend == "" }

func (p place) String() string {
	text := p.backend + " " + string(p.state) + " " + p.cursor
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func (s *Server) parseListing(raw string) (*listing, error) {
	asked, err := web.ParseQuery(raw, "backend", "status", "client", "operation", "code", "cursor",
		"limit")
	if err != nil {
		return nil, err
	}
	l := &listing{backends: slices.Sorted(maps.Keys(s.Lines)), client: asked["client"],
		operation: asked["operation"], code: asked["code"]}
	if name := asked["backend"]; name != "" {
		if s.Lines[name] == nil {
			return nil, unknownBackend(name)
		}
		l.backends = []string{name}
	}
	known := false
	if l.states, known = listable[asked["status"]]; !known {
		return nil, web.InvalidRequest("Jobs are listed by status queued (or waiting, delayed, " +
			"released), running or failed. Those that ended otherwise are found by their id alone.")
	}
	if l.code != "" && asked["status"] != api.Failed {
		return nil, web.InvalidRequest("Jobs are listed by code together with status=failed.")
	}
	if l.limit, err = web.PageLimit(asked["limit"], leaky.MaxPage); err != nil {
		return nil, err
	}
	if asked["cursor"] != "" {
		return l, l.goOn(asked["cursor"])
	}
	if len(l.backends) > 0 {
		l.place = place{backend: l.backends[0], state: l.states[0]}
	}
	return l, nil
}

// goOn continues a listing at a cursor, which must be of the same backends and states.
func (l *listing) goOn(cursor string) error {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.SplitN(string(text), " ", 3)
	if err != nil || len(parts) != 3 || !slices.Contains(l.backends, parts[0]) ||
		!slices.Contains(l.states, jobs.State(parts[1])) {
		return wrongCursor()
	}
	l.place = place{backend: parts[0], state: jobs.State(parts[1]), cursor: parts[2]}
	return nil
}

func wrongCursor() error {
	return web.InvalidRequest("The parameter cursor must be next_cursor of the page before, " +
		"with the same backend and status.")
}

// page reads the next jobs, at most l.limit, and moves l behind them.
func (l *listing) page(c *web.Call, lines map[string]Line) ([]leaky.Look, error) {
	var found []leaky.Look
	for work := leaky.MaxWork; work > 0 && !l.end() && len(found) < l.limit; {
		part, err := lines[l.backend].List(c.Ctx, leaky.ListFilter{State: l.state, Client: l.client,
			Operation: l.operation, Code: l.code, Cursor: l.cursor, Limit: l.limit - len(found),
			Work: work})
		if errors.Is(err, leaky.ErrCursor) {
			return nil, wrongCursor()
		}
		if err != nil {
			return nil, web.StoreError(err)
		}
		found = append(found, part.Jobs...)
		work -= max(callWork, part.Work)
		if l.cursor = part.Next; l.cursor == "" {
			l.turn()
		}
	}
	return found, nil
}

// turn moves to the beginning of the next list: the backend's next state, or the next backend's
// first.
func (l *listing) turn() {
	if i := slices.Index(l.states, l.state) + 1; i < len(l.states) {
		l.state = l.states[i]
		return
	}
	l.state = l.states[0]
	if i := slices.Index(l.backends, l.backend) + 1; i < len(l.backends) {
		l.backend = l.backends[i]
		return
	}
	l.place = place{}
}
