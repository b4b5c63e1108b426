package limits

import (
	"context"
	_ "embed"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed peers.lua
var peersLua string

var peers = redis.NewScript(peersLua)

const (
	peersKey  = "fb:{peers}"
	peerEvery = time.Second
	// peerGone is how long a process counts after its last call. It may miss two calls in a row.
	peerGone = 3500 * time.Millisecond
)

// Peers counts the processes that share the limits, including its own. Safe for concurrent use.
type Peers struct {
	rdb   redis.UniversalClient
	name  string
	least int64
	count atomic.Int64
}

// NewPeers returns a Peers for the process with the given unique name. least, 1 or more, is how
// many processes there are at least. It is the count until Redis has first been reached.
func NewPeers(rdb redis.UniversalClient, name string, least int) *Peers {
	p := &Peers{rdb: rdb, name: name, least: int64(least)}
	p.count.Store(p.least)
	return p
}

// Count returns how many processes there were when Redis was last reached, but not less than
// NewPeers's least.
func (p *Peers) Count() int { return int(p.count.Load()) }

// Run makes this process count, by a call each second, until ctx ends.
func (p *Peers) Run(ctx context.Context) {
	tick := time.NewTicker(peerEvery)
	defer tick.Stop()
	for {
		p.call(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), peerEvery)
			defer cancel()
			p.rdb.ZRem(last, peersKey, p.name) // if this fails, it counts for peerGone
			return
		}
	}
}

func (p *Peers) call(ctx context.Context) {
	n, err := peers.Run(ctx, p.rdb, []string{peersKey}, p.name, peerGone.Microseconds()).Int64()
	if err == nil {
		p.count.Store(max(p.least, n))
	}
}
