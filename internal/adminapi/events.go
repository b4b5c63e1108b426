package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/history"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/web"
)

// Events are what happened in the service's operation, in package history.
type Events interface {
	Record(api.OperationEvent)
	List(context.Context, history.Filter) (page []api.OperationEvent, next string, err error)
	LastID(context.Context) (string, error)
}

const (
	defaultEvents = 100
	maxEvents     = 1000
	// maxStreams bounds the streams of events: the rest of the listener's 64 connections is for
	// those who act, and for probes.
	maxStreams = 52
	// lookEvery is how often a stream looks for events. Streams share what they find.
	lookEvery = time.Second
)

// events answers GET /admin/v1/events: a page, or a stream to those who accept one.
func (s *Server) events(c *web.Call) error {
	asked, err := parseQuery(c, "from", "backend", "type", "limit", "cursor")
	if err != nil {
		return err
	}
	f, err := s.readFilter(asked)
	if err != nil {
		return err
	}
	if s.Events != nil && web.WantsStream(c.R.Header["Accept"]) {
		return s.streamEvents(c, f)
	}
	answer := api.OperationEvents{Events: []api.OperationEvent{}}
	if s.Events != nil {
		page, next, err := s.Events.List(c.Ctx, f)
		if err != nil {
			return eventsError(err)
		}
		if answer.Events = append(answer.Events, page...); next != "" {
			answer.NextCursor = &next
		}
	}
	return show(c, asked, answer, text.Events)
}

// readFilter reads which events are asked for.
func (s *Server) readFilter(asked map[string]string) (f history.Filter, err error) {
	if f.From, err = readTime(s.now(), "from", asked["from"]); err != nil {
		return f, err
	}
	f.Backend, f.Type, f.After, f.Limit = asked["backend"], asked["type"], asked["cursor"],
		defaultEvents
	if f.Backend != "" && s.Lines[f.Backend] == nil {
		return f, unknownBackend(f.Backend)
	}
	if f.Type != "" && !slices.Contains(api.OperationEventTypes, f.Type) {
		return f, web.InvalidRequest("There is no type " + web.Brief(f.Type) + "; there are " +
			strings.Join(api.OperationEventTypes, ", ") + ".")
	}
	if asked["limit"] != "" {
		f.Limit, err = web.PageLimit(asked["limit"], maxEvents)
	}
	return f, err
}

// eventsError is the answer to a list that failed.
func eventsError(err error) error {
	if errors.Is(err, history.ErrBadID) {
		return web.InvalidRequest("The parameter cursor isn't the id of an event.")
	}
	return web.StoreError(err)
}

// streamEvents answers with a stream of events: those after the one that the client saw last, or
// from a time on, or from now on.
func (s *Server) streamEvents(c *web.Call, f history.Filter) error {
	f.Limit = maxEvents
	if seen := c.R.Header.Get("Last-Event-ID"); seen != "" {
		f.After = seen
	}
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		return web.TooManyStreams("There are " + strconv.Itoa(maxStreams) + " streams of events " +
			"already. Ask for pages.")
	}
	defer s.streams.Add(-1)
	var err error
	if f.After == "" && f.From.IsZero() {
		f.After, err = s.Events.LastID(c.Ctx)
	} else {
		// An id that can't be is refused before the answer begins.
		_, _, err = s.Events.List(c.Ctx, f)
	}
	if err != nil {
		return eventsError(err)
	}
	out, more := c.BeginEvents()
	if !more {
		return nil
	}
	began := time.Now()
	defer func() { c.Held = time.Since(began) }()
	s.followEvents(c, out, f)
	return nil
}

// followEvents writes events until the client leaves, or the stream or the process is to end.
func (s *Server) followEvents(c *web.Call, out web.EventStream, f history.Filter) {
	look, end, silent := time.NewTicker(lookEvery), time.After(s.life), time.Now()
	defer look.Stop()
	for {
		page, err := s.nextEvents(c, f)
		if err != nil {
			c.StoreFailed(err) // it is logged; there are more later
		}
		for _, e := range page {
			data, err := json.Marshal(e) // of one line
			if err != nil || out.Send(e.ID, e.Type, data) != nil {
				return
			}
			f.After, silent = e.ID, time.Now()
		}
		if time.Since(silent) >= s.beat {
			if out.Comment() != nil {
				return
			}
			silent = time.Now()
		}
		if s.Web.Leaving() {
			_ = out.ComeBack()
			return
		}
		select {
		case <-look.C:
		case <-c.R.Context().Done():
			return
		case <-end:
			_ = out.ComeBack()
			return
		}
	}
}

// nextEvents are the first events that a stream hasn't sent.
func (s *Server) nextEvents(c *web.Call, f history.Filter) ([]api.OperationEvent, error) {
	ctx, cancel := context.WithTimeout(c.R.Context(), web.StoreTime)
	defer cancel()
	page, _, err := s.Events.List(ctx, f)
	return page, err
}
