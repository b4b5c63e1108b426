package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/glance"
)

// mirrorFor is how long the events as read are taken for all that there are.
const mirrorFor = time.Second

// mirror is what Redis has of the events, or had: at most MaxEvents, a few hundred bytes each. All
// readers of a process share it.
type mirror struct {
	*glance.Glance[[]api.OperationEvent] // its values are never changed

	// What follow knows, which is called once at a time.
	last   string // id of the last event that was read; "": none
	events []api.OperationEvent
}

// lookAnew forgets when the events were read.
func (e *Events) lookAnew() {
	e.mirror.Glance = glance.New(mirrorFor, callTime, time.Now, e.follow)
}

// Filter says which events are asked for. Zero values ask for all.
type Filter struct {
	From, To      time.Time // To is excluded
	Backend, Type string
	After         string // the id of an event: those with larger ones
	Limit         int    // at least 1
}

// ErrBadID is the error for an id that no event can have.
var ErrBadID = errors.New("history: there is no such event id")

// List returns events in order of their ids, and the id to go on after if there are more; "": there
// are none. Without From and After they are the last ones, otherwise the first ones. Concurrent and
// repeated lists share calls to Redis: it may miss the events of the last second.
func (e *Events) List(ctx context.Context, f Filter) (
	page []api.OperationEvent, next string, err error) {
	if f.After != "" {
		if _, _, err := parseID(f.After); err != nil {
			return nil, "", err
		}
	}
	all, err := e.all(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, event := range all {
		if f.wants(event) {
			page = append(page, event)
		}
	}
	if len(page) <= f.Limit {
		return page, "", nil
	}
	if f.After == "" && f.From.IsZero() {
		return page[len(page)-f.Limit:], "", nil
	}
	page = page[:f.Limit]
	return page, page[f.Limit-1].ID, nil
}

func (f Filter) wants(e api.OperationEvent) bool {
	return (f.Backend == "" || e.Backend == f.Backend) && (f.Type == "" || e.Type == f.Type) &&
		!e.Time.Before(f.From) && (f.To.IsZero() || e.Time.Before(f.To)) &&
		(f.After == "" || laterID(e.ID, f.After))
}

// LastID is the id of the newest event; "0-0": there is none.
func (e *Events) LastID(ctx context.Context) (string, error) {
	all, err := e.all(ctx)
	if err != nil || len(all) == 0 {
		return "0-0", err
	}
	return all[len(all)-1].ID, nil
}

// all returns the events that are kept, in order. The slice is never changed.
func (e *Events) all(ctx context.Context) ([]api.OperationEvent, error) {
	seen, _ := e.mirror.Get(ctx)
	if seen.Err != nil {
		return nil, fmt.Errorf("read events: %w", seen.Err)
	}
	return seen.Value, nil
}

// follow reads what is new, and returns all.
func (e *Events) follow(ctx context.Context) ([]api.OperationEvent, error) {
	m, oldest := &e.mirror, e.now().Add(-keep)
	for more := true; more; {
		from := "-"
		if m.last != "" {
			from = "(" + m.last
		}
		found, err := e.rdb.XRangeN(ctx, keyEvents, from, "+", MaxEvents).Result()
		if err != nil {
			return nil, err
		}
		events := slices.Clip(m.events) // readers have it: what is appended must go elsewhere
		for _, x := range found {
			m.last = x.ID
			if event, ok := decode(x); ok {
				events = append(events, event)
			}
		}
		gone := max(0, len(events)-MaxEvents)
		for gone < len(events) && timeOf(events[gone].ID).Before(oldest) {
			gone++
		}
		m.events, more = events[gone:], len(found) == MaxEvents
	}
	return m.events, nil
}

// decode reads an entry of the stream. One that this version doesn't know is left out.
func decode(x redis.XMessage) (event api.OperationEvent, ok bool) {
	text, _ := x.Values["e"].(string)
	at, _ := x.Values["at"].(string)
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil || json.Unmarshal([]byte(text), &event) != nil {
		return event, false
	}
	event.ID, event.Time = x.ID, api.Time{Time: time.UnixMicro(micros).UTC()}
	return event, true
}

func timeOf(id string) time.Time {
	ms, _, _ := parseID(id)
	return time.UnixMilli(int64(ms))
}

// parseID reads an id: milliseconds, and a number among those of one.
func parseID(id string) (ms, number uint64, err error) {
	first, second, ok := strings.Cut(id, "-")
	ms, err = strconv.ParseUint(first, 10, 64)
	number, wrong := strconv.ParseUint(second, 10, 64)
	if !ok || err != nil || wrong != nil {
		return 0, 0, ErrBadID
	}
	return ms, number, nil
}

// laterID reports whether the first of two ids is the larger.
func laterID(a, b string) bool {
	ms, number, _ := parseID(a)
	thanMS, than, _ := parseID(b)
	return ms > thanMS || ms == thanMS && number > than
}
