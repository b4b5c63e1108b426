package store

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// frontTimeout bounds each dial, write and read of Client. A hung Redis is an error after half
	// a second, so the front still answers within one. Large payloads add to the bound
	// (movingConn).
	frontTimeout = 500 * time.Millisecond
	// executorTimeout is Executor's. It is longer, since no caller waits, and each error there
	// causes work.
	executorTimeout = 2 * time.Second

	// frontPool bounds Client's connections to each server. Redis runs one script at a time and
	// concurrent requests share calls, so only a few connections are busy at once. 32 leaves room
	// for the back's calls of some thirty backends.
	frontPool = 32
	// executorPool bounds Executor's connections. asynq makes some six short calls a second for
	// each backend, and each dequeue under way uses one.
	executorPool = 16

	// topologyAge is how old a client's view of a cluster may be. A dead master sends no MOVED:
	// without this bound, the Executor would call it for another minute after its replica has taken
	// over.
	topologyAge = time.Second
)

// client returns a client of t. It repeats no command, and keeps only a few connections of its pool
// for large ones.
func (t target) client(size int, timeout time.Duration) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs:            slices.Clone(t.addrs), // a cluster's client appends to it
		MasterName:       t.master,
		DB:               t.db,
		Username:         t.user,
		Password:         t.password,
		SentinelUsername: t.sentinelUser,
		SentinelPassword: t.sentinelPassword,

		// A script whose reply got lost must not run twice.
		MaxRetries: -1,
		// On a cluster, redirections count as retries, and one number bounds both. So while a slot
		// moves, calls to it fail. Scripts of several keys would fail then anyway, and all of ours
		// have several.
		MaxRedirects: -1,

		Dialer:                dialer(timeout, t.config),
		DialerRetries:         1,
		DialTimeout:           timeout,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		PoolTimeout:           timeout,
		ContextTimeoutEnabled: true, // otherwise a caller's deadline wouldn't end a read
		PoolSize:              size,
		PipelinePoolSize:      -1, // one pool, one bound

		// Both would send commands on each new connection that servers before 7.2 refuse.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	var c redis.UniversalClient
	switch t.kind {
	case sentinel:
		c = redis.NewFailoverClient(o.Failover())
	case cluster:
		o := o.Cluster()
		o.ClusterStateReloadInterval = topologyAge
		c = redis.NewClusterClient(o)
	default:
		c = redis.NewClient(o.Simple())
	}
	c.AddHook(newLargeHook(size))
	return c
}

// dialer returns the function that connects to a server, with TLS if config is set.
//
// It never fails: if it can't connect, the connection's first use fails instead. go-redis's pool
// counts failed dials: after as many as it has connections, it fails every call without dialing,
// until its own attempt, once a second, succeeds. That would add up to a second to every recovery.
func dialer(timeout time.Duration, config *tls.Config) func(
	ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout}
	dial := plain.DialContext
	if config != nil {
		// each server is verified by its own address
		dial = (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return noConn{fmt.Errorf("redis: %w", err)}, nil
		}
		return moving(conn), nil
	}
}

// noConn is a connection that could not be made: every use fails with the reason.
type noConn struct{ err error }

func (c noConn) Read([]byte) (int, error)         { return 0, c.err }
func (c noConn) Write([]byte) (int, error)        { return 0, c.err }
func (c noConn) Close() error                     { return nil }
func (c noConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c noConn) SetDeadline(time.Time) error      { return nil }
func (c noConn) SetReadDeadline(time.Time) error  { return nil }
func (c noConn) SetWriteDeadline(time.Time) error { return nil }
