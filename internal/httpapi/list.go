package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/jobview"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// maxOwnRounds bounds the calls of each backend for one page. After the first round, work is left
// only if some backends had fewer jobs to look at than their part.
const maxOwnRounds = 4

// listOwn answers GET /v1/jobs: the caller's jobs on all backends, newest first. It looks at a
// bounded number of jobs, on all backends together, so a page may be short or empty.
func (s *Server) listOwn(c *call) error {
	if c.caller.Anonymous {
		c.W.Header().Set("WWW-Authenticate", `Bearer realm="forebay"`)
		return web.Problem(http.StatusUnauthorized, api.CodeInvalidCredentials,
			"A list needs an API key: callers without one may share an address, "+
				"so they have no list. Ask for each job by its id.")
	}
	l, err := s.parseOwnListing(c.R.URL.RawQuery)
	if err != nil {
		return err
	}
	if !s.Store.Healthy() {
		return web.StoreError(web.ErrUnhealthy)
	}
	if p := c.s.Admission.ReadsPlan(c.caller); len(p.Rules) > 0 {
		c.plan = p // the fields of every answer, also of a refusal, describe the limits on reads
	}
	leave, err := c.listTurn()
	if err != nil {
		return err
	}
	defer leave()
	charged, err := c.chargeReads(leaky.MaxWork)
	if err != nil {
		return err
	}
	l.filter.Client, l.work = c.caller.ID, charged.work
	for round := 0; round < maxOwnRounds && !l.end && l.work > 0 &&
		len(l.found) < l.limit; round++ {
		if err := l.round(c); err != nil {
			charged.settle(c, l.work)
			return web.StoreError(err)
		}
	}
	charged.settle(c, l.work)
	answer := api.JobList{Jobs: []api.Job{}}
	now := time.Now()
	for _, look := range l.found {
		answer.Jobs = append(answer.Jobs, *jobview.ForClient(look, now))
	}
	if !l.end {
		answer.NextCursor = cursorOf(l.filter.After)
	}
	return c.JSON(http.StatusOK, answer)
}

// ownListing is a walk over one client's lists on all backends at once. All lists are read up to
// the same point in time, which is the cursor, so new backends don't disturb it.
type ownListing struct {
	lines  map[string]Line  // those that may have more
	filter leaky.MineFilter // its After is how far the walk is
	limit  int
	work   int // jobs that may still be looked at
	found  []leaky.Look
	end    bool // there are no more
}

// ownStatuses are the statuses by which a client may list its jobs.
var ownStatuses = []string{api.Queued, api.Running,
	api.Succeeded, api.Failed, api.Canceled, api.Expired}

func (s *Server) parseOwnListing(raw string) (*ownListing, error) {
	asked, err := web.ParseQuery(raw, "status", "operation", "cursor", "limit")
	if err != nil {
		return nil, err
	}
	l := &ownListing{lines: maps.Clone(s.Lines),
		filter: leaky.MineFilter{Status: asked["status"], Operation: asked["operation"]}}
	if l.filter.Status != "" && !slices.Contains(ownStatuses, l.filter.Status) {
		return nil, web.InvalidRequest("The parameter status must be one of " +
			strings.Join(ownStatuses, ", ") + ".")
	}
	if l.limit, err = web.PageLimit(asked["limit"], leaky.MaxPage); err != nil {
		return nil, err
	}
	if text := asked["cursor"]; text != "" {
		if l.filter.After, err = parseCursor(text); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// A cursor has the time at which a job was accepted, in µs, and the job's id.

func cursorOf(m leaky.Mark) string { return web.Cursor(strconv.FormatInt(m.At, 10), m.ID) }

func parseCursor(text string) (leaky.Mark, error) {
	fields, err := web.ParseCursor(text, 2)
	if err != nil {
		return leaky.Mark{}, err
	}
	at, err := strconv.ParseInt(fields[0], 10, 64)
	if _, ok := jobs.ParseID(fields[1]); err != nil || at < 1 || !ok {
		return leaky.Mark{}, web.WrongCursor()
	}
	return leaky.Mark{At: at, ID: fields[1]}, nil
}

// uuidOf returns a job's id without its backend.
func uuidOf(id string) string {
	backend, _ := jobs.ParseID(id)
	return strings.TrimPrefix(id, backend+"-")
}

// newestFirst is the order of all lists of jobs, as leaky.Mark defines it.
func newestFirst(a, b leaky.Mark) int {
	if order := cmp.Compare(b.At, a.At); order != 0 {
		return order
	}
	return cmp.Compare(uuidOf(b.ID), uuidOf(a.ID))
}

func markOf(look leaky.Look) leaky.Mark {
	return leaky.Mark{At: look.Job.CreatedAt.UnixMicro(), ID: look.Job.ID}
}

// round asks every backend for its next jobs, and takes those than which no list can have an unseen
// newer one.
func (l *ownListing) round(c *call) error {
	need := l.limit - len(l.found)
	pages, err := l.ask(c, need)
	if err != nil {
		return err
	}
	var next []leaky.Look
	horizon := leaky.Mark{} // up to which all lists are known; zero: to their ends
	for _, page := range pages {
		next = append(next, page.Jobs...)
		if page.Next != (leaky.Mark{}) &&
			(horizon == leaky.Mark{} || newestFirst(page.Next, horizon) < 0) {
			horizon = page.Next
		}
	}
	slices.SortFunc(next, func(a, b leaky.Look) int { return newestFirst(markOf(a), markOf(b)) })
	if horizon != (leaky.Mark{}) {
		beyond := func(look leaky.Look) bool { return newestFirst(markOf(look), horizon) > 0 }
		if unsure := slices.IndexFunc(next, beyond); unsure >= 0 {
			next = next[:unsure]
		}
	}
	l.filter.After, l.end = horizon, horizon == leaky.Mark{}
	if len(next) > need {
		next = next[:need]
		l.filter.After, l.end = markOf(next[need-1]), false
	}
	l.found = append(l.found, next...)
	return nil
}

// ask makes all backends look concurrently, each for its part of the work that is left, and drops
// those that have no more jobs. Each call costs some work, whatever it finds.
func (l *ownListing) ask(c *call, limit int) ([]leaky.MinePage, error) {
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		pages []leaky.MinePage // guarded by mu
		empty []string         // guarded by mu
		wrong error            // guarded by mu
	)
	filter := l.filter
	filter.Limit, filter.Work = limit, max(1, l.work/max(1, len(l.lines)))
	for name, line := range l.lines {
		all.Go(func() {
			page, err := line.Mine(c.Ctx, filter)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				wrong = err
			}
			if len(page.Jobs) == 0 && page.Next == (leaky.Mark{}) {
				empty = append(empty, name)
			}
			pages = append(pages, page)
			l.work -= max(1, page.Work)
		})
	}
	all.Wait()
	for _, name := range empty {
		delete(l.lines, name)
	}
	return pages, wrong
}
