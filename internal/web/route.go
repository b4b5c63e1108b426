package web

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/forebay/forebay/api"
)

// Handler answers a call, or returns the error that is to be its answer.
type Handler[C any] func(C) error

// Route is one path and a handler for each of its methods.
type Route[C any] struct {
	// Path is a template; metrics and the log name the route by it. {name} is one segment, and
	// {path} all that follows.
	Path string
	// Handlers are by method. GET's also answers HEAD, and AnyMethod's all methods without one.
	Handlers map[string]Handler[C]
	// Unhandled, if it isn't nil, is called with a call whose method has no handler, before its
	// 405.
	Unhandled func(C)
}

// AnyMethod is the key of a route's handler for all methods without one of their own.
const AnyMethod = "*"

// unmatched is the route of all unknown paths.
const unmatched = "unmatched"

// Router returns a handler that answers by routes, each request with a call that begin makes. It
// matches paths exactly: none is cleaned or redirected, because a 301 would turn a POST into a GET.
func Router[C Caller](s *Server, begin func() C, routes ...Route[C]) http.Handler {
	m := mux.NewRouter().SkipClean(true)
	// A path without parameters needs no match: mux takes nine allocations for one, and copies the
	// request twice.
	plain := map[string]http.Handler{}
	for _, rt := range routes {
		if h := serve(s, begin, rt); strings.Contains(rt.Path, "{") {
			m.Handle(strings.ReplaceAll(rt.Path, "{path}", "{path:.*}"), h)
		} else {
			plain[rt.Path] = h
		}
	}
	m.NotFoundHandler = serve(s, begin, Route[C]{Path: unmatched})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := plain[r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		m.ServeHTTP(w, r)
	})
}

// serve answers the calls of one route.
func serve[C Caller](s *Server, begin func() C, rt Route[C]) http.Handler {
	if get := rt.Handlers["GET"]; get != nil {
		rt.Handlers["HEAD"] = get
	}
	allow := strings.Join(slices.Sorted(maps.Keys(rt.Handlers)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		full := begin()
		c := full.base()
		c.begin(s, full, w, r, rt.Path)
		defer c.end()
		h := rt.Handlers[r.Method]
		if h == nil {
			h = rt.Handlers[AnyMethod]
		}
		switch {
		case rt.Path == unmatched:
			c.Fail(Problem(http.StatusNotFound, api.CodeUnknownPath,
				"There is nothing at this path."))
		case h == nil:
			w.Header().Set("Allow", allow)
			if rt.Unhandled != nil {
				rt.Unhandled(full)
			}
			c.Fail(Problem(http.StatusMethodNotAllowed, api.CodeMethod, "Allowed: "+allow+"."))
		default:
			if err := h(full); err != nil {
				c.Fail(err)
			}
		}
	})
}

// NoQuery wraps h so that it is called only for requests without a query.
func NoQuery[C Caller](h Handler[C]) Handler[C] {
	return func(c C) error {
		if _, err := ParseQuery(c.base().R.URL.RawQuery); err != nil {
			return err
		}
		return h(c)
	}
}
