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
	// peerGone is how long a process that doesn't call counts: two lost calls don't make it one less.
	peerGone = 3500 * time.Millisecond
)

// Peers counts the processes that decide together, itself among them. Safe for concurrent use.
type Peers struct {
	rdb   redis.UniversalClient
	name  string
	least int64
	count atomic.Int64
}

// NewPeers returns a Peers that calls itself name, which no other process does. least, 1 or more, is how many there are at least: a
// process that starts while Redis is away can't know.
func NewPeers(rdb redis.UniversalClient, name string, least int) *Peers {
	p := &Peers{rdb: rdb, name: name, least: int64(least)}
	p.count.Store(p.least)
	return p
}

// Count is how many processes there were when Redis was last reached, or the least where that is more.
func (p *Peers) Count() int { return int(p.count.Load()) }

// Run calls each second until ctx ends, and then says goodbye.
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
			p.rdb.ZRem(last, peersKey, p.name) // else it is forgotten in some seconds
			return
		}
	}
}

func (p *Peers) call(ctx context.Context) {
	if n, err := peers.Run(ctx, p.rdb, []string{peersKey}, p.name, peerGone.Microseconds()).Int64(); err == nil {
		p.count.Store(max(p.least, n))
	}
}
