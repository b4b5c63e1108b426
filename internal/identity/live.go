package identity

import (
	"net/http"
	"sync/atomic"
)

// Live is an Identifier that can be replaced while requests come in. Safe for concurrent use.
type Live struct{ now atomic.Pointer[Identifier] }

// NewLive returns a Live that begins with i, which isn't nil.
func NewLive(i *Identifier) *Live {
	l := &Live{}
	l.Replace(i)
	return l
}

// Replace has every request that is identified from now on see i, which isn't nil, and the whole of it: none sees the keys of one
// Identifier and the tiers of another.
func (l *Live) Replace(i *Identifier) { l.now.Store(i) }

// FromProxy reports whether r comes from a trusted proxy, as Identifier.FromProxy does.
func (l *Live) FromProxy(r *http.Request) bool { return l.now.Load().FromProxy(r) }

// Identify says who sent r, as Identifier.Identify does.
func (l *Live) Identify(r *http.Request) (Client, error) { return l.now.Load().Identify(r) }
