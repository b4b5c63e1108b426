package leaky

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

const (
	// MaxPage bounds ListFilter.Limit. One call returns fewer jobs: at most maxGiven.
	MaxPage = 200
	// MaxWork bounds the jobs that one call looks at, and maxGiven those that it describes, which
	// takes three times as long. So a call takes under 1 ms of Redis's only thread.
	MaxWork      = 100
	maxGiven     = MaxWork / 2
	cursorFields = 3
)

// work returns the number of jobs that a call may look at.
func (l *Line) work(asked int) (int, error) {
	if asked < 0 || asked > MaxWork {
		return 0, fmt.Errorf("line of %s: a call looks at 1 to %d jobs, not %d", l.settings.Backend,
			MaxWork, asked)
	}
	return cmp.Or(asked, MaxWork), nil
}

var (
	// ErrCursor means that a cursor isn't from Page.Next.
	ErrCursor = errors.New("not a cursor of this list")
	// ErrNotListed means that jobs in this state can't be listed because they have no index: those
	// that have ended and haven't failed.
	ErrNotListed = errors.New("jobs of this state aren't listed")
)

// ListFilter selects the jobs to list, and where to begin.
type ListFilter struct {
	State     jobs.State // Waiting, Delayed, Released, Running or Failed; "": all of these
	Client    string     // "": any
	Operation string     // "": any
	Code      string     // of jobs.Failure, for failed jobs; "": any
	Cursor    string     // Next of the page before; "": from the beginning
	Limit     int        // jobs on the page: 1 to MaxPage
	Work      int        // jobs to look at, at most: 1 to MaxWork; 0: MaxWork
}

// Page is a page of a list. A page that isn't the last may have fewer jobs than Limit, or none,
// because one call looks at a bounded number of jobs.
type Page struct {
	Jobs []Look
	Next string // cursor of the next page; "" after the last
	Work int    // jobs that were looked at
}

// List returns the jobs that wait (the next one first), are delayed (by the end of their backoff),
// are in flight (by the end of their lease) or have failed (the newest first, for KeepFailed or
// until they are redriven). Without a State it lists them in this order. For other states it
// returns ErrNotListed. A cursor stays valid while jobs come and go: each job that keeps its place
// is listed once. A job in flight whose lease is renewed meanwhile may be listed twice. For a
// cursor that isn't from this list it returns ErrCursor.
func (l *Line) List(ctx context.Context, f ListFilter) (Page, error) {
	lists, known := listsOf[f.State]
	if !known {
		return Page{}, fmt.Errorf("%w: %s", ErrNotListed, f.State)
	}
	from, err := parseCursor(f.Cursor, lists)
	if err != nil {
		return Page{}, err
	}
	q := query{place: from, reverse: from.key == keyFailed, client: f.Client,
		operation: f.Operation, code: f.Code, limit: f.Limit, work: f.Work}
	if from.key == keyInflight {
		q.state = f.State
	}
	found, err := l.list(ctx, q)
	if err != nil {
		return Page{}, err
	}
	next := found.next
	if next.end() {
		next = following(lists, from.key)
	}
	return Page{Jobs: found.jobs, Next: next.String(), Work: found.work}, nil
}

// listsOf has the zsets with the jobs of each state.
var listsOf = map[jobs.State][]int{
	"":            {keyLine, keyDelayed, keyInflight, keyFailed},
	jobs.Waiting:  {keyLine},
	jobs.Delayed:  {keyDelayed},
	jobs.Released: {keyInflight},
	jobs.Running:  {keyInflight},
	jobs.Failed:   {keyFailed},
}

// place is where a list goes on: behind a job in a zset, with its score at that time. Without an id
// it is the beginning of the zset.
type place struct {
	key   int // index in keys; -1: the end
	score string
	id    string
}

func (p place) end() bool { return p.key < 0 }

// following returns the beginning of the list after that of key.
func following(lists []int, key int) place {
	if i := slices.Index(lists, key) + 1; i < len(lists) {
		return place{key: lists[i]}
	}
	return place{key: -1}
}

func (p place) String() string {
	if p.end() {
		return ""
	}
	return strconv.Itoa(p.key) + " " + p.score + " " + p.id
}

// parseCursor is the inverse of place.String. It refuses texts that would make the script fail.
func parseCursor(cursor string, lists []int) (place, error) {
	if cursor == "" {
		return place{key: lists[0]}, nil
	}
	parts := strings.SplitN(cursor, " ", cursorFields)
	if len(parts) != cursorFields {
		return place{}, ErrCursor
	}
	key, err := strconv.Atoi(parts[0])
	if err != nil || !slices.Contains(lists, key) {
		return place{}, ErrCursor
	}
	p := place{key: key, score: parts[1], id: parts[2]}
	if p.score == "" && p.id == "" {
		return p, nil
	}
	// Go also parses numbers that Redis doesn't: NaN, inf, 0x_1p4.
	if _, err := strconv.ParseFloat(p.score, 64); err != nil ||
		strings.Trim(p.score, "0123456789.e+-") != "" {
		return place{}, ErrCursor
	}
	if _, ok := jobs.ParseID(p.id); !ok {
		return place{}, ErrCursor
	}
	return p, nil
}

// query is one call of the list script.
type query struct {
	place
	reverse                 bool
	client, operation, code string
	state                   jobs.State
	until                   time.Time // without jobs that failed later; zero: all
	limit, work             int
}

type foundJobs struct {
	now  time.Time
	jobs []Look
	next place
	work int
}

func (l *Line) list(ctx context.Context, q query) (foundJobs, error) {
	if q.limit < 1 || q.limit > MaxPage {
		return foundJobs{}, fmt.Errorf("line of %s: list: a page has 1 to %d jobs, not %d",
			l.settings.Backend, MaxPage, q.limit)
	}
	work, err := l.work(q.work)
	if err != nil {
		return foundJobs{}, err
	}
	client, reverse, until := "", "", any("")
	if q.client != "" {
		client = clientTag(q.client)
	}
	if q.reverse {
		reverse = "1"
	}
	if !q.until.IsZero() {
		until = q.until.UnixMicro()
	}
	a, err := l.run(ctx, listScript, q.key+1, reverse, q.score, q.id, min(q.limit, maxGiven), work,
		client, q.operation, string(q.state), q.code, until)
	if err != nil {
		return foundJobs{}, err
	}
	found := foundJobs{now: a.when()}
	waitingOn, callTime := a.text(), a.micros()
	found.next = place{key: q.key, score: a.text(), id: a.text()}
	if found.next.id == "" {
		found.next.key = -1
	}
	found.work = int(a.number())
	for len(a.values) > 0 && a.err == nil {
		row := a.list()
		id := row.text()
		look, err := readLook(id, row, waitingOn)
		if err != nil {
			return foundJobs{}, fmt.Errorf("line of %s: list: job %s: %w", l.settings.Backend, id,
				err)
		}
		look.Now, look.CallTime = found.now, callTime
		found.jobs = append(found.jobs, look)
	}
	return found, a.err
}
