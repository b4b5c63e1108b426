package identity

import (
	"net/http"
	"sync/atomic"
)

// Live is an Identifier that can be replaced while requests come in. It is safe for concurrent use.
type Live struct{ now atomic.Pointer[Identifier] }

// NewLive returns a Live that begins with i, which isn't nil.
func NewLive(i *Identifier) *Live {
	l := &Live{}
	l.Replace(i)
	return l
}

// Replace makes all later calls of Identify use i, which isn't nil. Each call uses one Identifier
// as a whole: no request sees the keys of one and the tiers of another.
func (l *Live) Replace(i *Identifier) { l.now.Store(i) }

// FromProxy reports whether r comes from a trusted proxy, as Identifier.FromProxy does.
func (l *Live) FromProxy(r *http.Request) bool { return l.now.Load().FromProxy(r) }

// Identify returns the caller of r, as Identifier.Identify does.
func (l *Live) Identify(r *http.Request) (Client, error) { return l.now.Load().Identify(r) }
