package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/forebay/forebay/api"
)

// handler answers a call, or returns the error that is to be its answer.
type handler func(*call) error

// route is one path and a handler for each of its methods. GET answers HEAD too.
type route struct {
	path      string // a template: what the route is called in metrics; {path} is all that follows
	callers   bool   // it is for callers who say who they are
	admission bool   // its answers are decisions on a job, or on what a gateway asks about
	handlers  map[string]handler
}

// router matches paths exactly as they are. No path is cleaned or redirected: a 301 would turn a POST into a GET.
func (s *Server) router(routes ...route) http.Handler {
	m := mux.NewRouter().SkipClean(true)
	for _, rt := range routes {
		m.Handle(strings.ReplaceAll(rt.path, "{path}", "{path:.*}"), s.serve(rt))
	}
	m.NotFoundHandler = s.serve(route{path: unmatched})
	return m
}

// anyMethod is the handler of a route for all methods that have none of their own.
const anyMethod = "*"

// unmatched is the route of all paths that aren't there.
const unmatched = "unmatched"

// serve answers the calls of one route.
func (s *Server) serve(rt route) http.Handler {
	if get := rt.handlers["GET"]; get != nil {
		rt.handlers["HEAD"] = get
	}
	allow := strings.Join(slices.Sorted(maps.Keys(rt.handlers)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := s.begin(w, r, rt)
		defer c.end()
		h := rt.handlers[r.Method]
		if h == nil {
			h = rt.handlers[anyMethod]
		}
		switch {
		case rt.path == unmatched:
			c.fail(problem(http.StatusNotFound, api.CodeUnknownPath, "There is nothing at this path."))
		case h == nil:
			w.Header().Set("Allow", allow)
			c.admission = false // nobody asked for a job
			if client, err := s.Identity.Identify(r); rt.callers && err == nil {
				c.identify(client)
			}
			c.fail(problem(http.StatusMethodNotAllowed, api.CodeMethod, "Allowed: "+allow+"."))
		default:
			if err := h(c); err != nil {
				c.fail(err)
			}
		}
	})
}
