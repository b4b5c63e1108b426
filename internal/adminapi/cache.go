package adminapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/web"
)

const (
	// countTime bounds the counting of all operations' answers, of up to 5,000 each: some 10 ms for
	// one of that size.
	countTime = 5 * time.Second
	// purgeTime bounds one purge, within the listener's time for writing. A million answers take
	// some 10 s.
	purgeTime = time.Minute
)

// cacheRoutes are the calls on stored answers; none if operators can't look at them.
func (s *Server) cacheRoutes() []route {
	if s.Stored == nil {
		return nil
	}
	return []route{
		s.route("/admin/v1/cache", methods{"GET": s.showCache}),
		s.routeWithQuery("/admin/v1/cache/entry", s.showCached),
		s.route("/admin/v1/cache/purge", methods{"POST": s.purgeCache}),
	}
}

// showCache answers GET /admin/v1/cache.
func (s *Server) showCache(c *web.Call) error {
	ctx, cancel := context.WithTimeout(c.R.Context(), countTime)
	defer cancel()
	answer := api.Cache{Operations: []api.CachedOperation{}}
	for _, name := range slices.Sorted(maps.Keys(s.Operations)) {
		h, err := s.Stored.Holding(ctx, name)
		if err != nil {
			return web.StoreError(err)
		}
		o := s.Front.Served(name)
		o.Operation, o.Answers, o.Bytes, o.Partial = name, h.Answers, h.Bytes, h.Partial
		answer.Operations = append(answer.Operations, o)
	}
	return c.JSON(http.StatusOK, answer)
}

// showCached answers GET /admin/v1/cache/entry. The body of the answer belongs to its clients, and
// isn't shown.
func (s *Server) showCached(c *web.Call) error {
	key, err := s.parseCached(c.R.URL.RawQuery)
	if err != nil {
		return err
	}
	e, ok, err := s.Stored.Inspect(c.Ctx, key)
	switch {
	case err != nil:
		return web.StoreError(err)
	case !ok:
		return web.Problem(http.StatusNotFound, api.CodeNoAnswer, "There is no such answer.")
	}
	return c.JSON(http.StatusOK, api.CachedAnswer{Key: e.Key, AgeSeconds: e.Age.Seconds(),
		RemovedInSeconds: e.Left.Seconds(), Status: e.Status, ContentType: e.ContentType,
		Size: e.Size})
}

// parseCached reads which answer to show: by its key, or by the request that it answers.
func (s *Server) parseCached(raw string) (key string, err error) {
	asked, err := web.ParseQuery(raw, "key", "operation", "client", "tier", "payload")
	if err != nil {
		return "", err
	}
	if key := asked["key"]; key != "" {
		switch {
		case len(asked) > 1:
			return "", web.InvalidRequest(
				"The parameter key stands for all others: leave them out.")
		case !cache.IsKey(key):
			return "", web.InvalidRequest("The parameter key must be as this call tells it: " +
				"fb:cache: and 32 hex digits in braces.")
		}
		return key, nil
	}
	name := asked["operation"]
	p, known := s.Operations[name]
	payload := asked["payload"]
	switch {
	case name == "" || payload == "":
		return "", web.InvalidRequest("Name the answer by key, or by operation and payload, " +
			"and the client or tier that shares it.")
	case !known:
		return "", web.Problem(http.StatusNotFound, api.CodeUnknownOperation,
			"There is no operation "+web.Brief(name)+".")
	case !json.Valid([]byte(payload)):
		return "", web.InvalidRequest("The parameter payload must be JSON.")
	}
	switch {
	case p.Share == degrade.ShareAll:
	case p.Share == degrade.ShareTier && asked["tier"] == "":
		return "", web.InvalidRequest("The answers of " + name +
			" are shared within a tier: name the tier.")
	case p.Share != degrade.ShareTier && asked["client"] == "":
		return "", web.InvalidRequest("The answers of " + name +
			" are each client's own: name the client.")
	}
	return p.CacheKey(name, asked["client"], asked["tier"], []byte(payload)), nil
}

// purgeCache answers POST /admin/v1/cache/purge.
func (s *Server) purgeCache(c *web.Call) error {
	body, err := web.ReadBody(c.W, c.R, maxTuneBody)
	if err != nil {
		return err
	}
	f, err := parsePurge(body)
	if err != nil {
		return err
	}
	if !s.Store.Healthy() {
		return web.StoreError(web.ErrUnhealthy)
	}
	// The purge stops when its operator disconnects.
	ctx, cancel := context.WithTimeout(c.R.Context(), purgeTime)
	defer cancel()
	removed, err := s.Stored.Purge(ctx, f)
	s.audit(c, "stored answers purged", err, slog.String("operation", f.Operation),
		slog.String("client", loggable(f.Client)), slog.String("key", f.Key),
		slog.Int("removed", removed))
	if err != nil {
		return web.StoreError(err)
	}
	return c.JSON(http.StatusOK, api.CachePurged{Removed: removed})
}

// parsePurge reads which answers to purge. The operation may be one that the config no longer has.
func parsePurge(body []byte) (f cache.Filter, err error) {
	fields, err := web.Members(body)
	if err != nil {
		return f, err
	}
	if len(fields) == 0 {
		return f, web.InvalidRequest("Nothing is to be purged: name operation, client or key.")
	}
	var wrong web.FieldErrors
	for _, m := range fields {
		switch m.Name {
		case "operation":
			f.Operation = wrong.Filled(m)
		case "client":
			f.Client = wrong.Filled(m)
		case "key":
			if f.Key = wrong.Filled(m); f.Key != "" && !cache.IsKey(f.Key) {
				wrong.Add(m.Name,
					"Must be the key of a stored answer: fb:cache: and 32 hex digits in braces.")
			}
		default:
			wrong.Unknown(m)
		}
	}
	return f, wrong.Err()
}
