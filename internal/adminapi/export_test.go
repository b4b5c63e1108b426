package adminapi

import (
	"time"

	"github.com/forebay/forebay/internal/jobs"
)

// What the tests of package adminapi_test use of the package's inside.

const (
	MaxListCalls = maxListCalls
	MaxShown     = maxShown
)

// SetRedriveTime replaces how long a redrive of many jobs may take.
func (s *Server) SetRedriveTime(d time.Duration) { s.redriveTime = d }

// Operators is the guard of the listener.
func (s *Server) Operators() *Operators { return s.operators }

// Cursor is a cursor of a list of jobs.
func Cursor(backend string, state jobs.State, cursor string) string {
	return place{backend, string(state), cursor}.String()
}

// ListReaders is how many requests for lists have the turn or wait for it.
func (s *Server) ListReaders() int { return s.lists.Users() }

// Calls are all calls of the listener, by the template of their path: the methods.
func (s *Server) Calls() map[string][]string {
	calls := map[string][]string{}
	for _, r := range s.routes() {
		for method := range r.Handlers {
			calls[r.Path] = append(calls[r.Path], method)
		}
	}
	return calls
}
