package store

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/transfer"
)

// movingConn is a connection whose deadlines grow with the bytes that pass, by transfer.Time. So a
// hung Redis is an error as soon as on other connections, and a large payload that still moves
// isn't cut off. As with any connection, one goroutine may read and one may write at a time.
type movingConn struct {
	net.Conn
	reads, writes progress
}

// progress counts the bytes that have passed in one direction since the deadline was set.
type progress struct {
	deadline time.Time // zero: none
	bytes    atomic.Int64
}

func (p *progress) begin(deadline time.Time, bytes int64) {
	p.deadline = deadline
	p.bytes.Store(bytes)
}

// moved counts bytes and returns the new deadline, if it has changed.
func (p *progress) moved(bytes int) (deadline time.Time, changed bool) {
	sum := p.bytes.Add(int64(bytes))
	changed = bytes > 0 && sum > transfer.Small && !p.deadline.IsZero()
	return p.deadline.Add(transfer.Time(int(sum))), changed
}

func (c *movingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if deadline, changed := c.reads.moved(n); changed && err == nil {
		err = c.Conn.SetReadDeadline(deadline)
	}
	return n, err
}

func (c *movingConn) Write(b []byte) (int, error) {
	if deadline, changed := c.writes.moved(len(b)); changed {
		if err := c.Conn.SetWriteDeadline(deadline); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// SetReadDeadline sets the deadline of the reply to the data written since the last
// SetWriteDeadline. That data may still be on its way to Redis.
func (c *movingConn) SetReadDeadline(t time.Time) error {
	written := c.writes.bytes.Load()
	c.reads.begin(t, written)
	if !t.IsZero() {
		t = t.Add(transfer.Time(int(written)))
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *movingConn) SetWriteDeadline(t time.Time) error {
	c.writes.begin(t, 0)
	return c.Conn.SetWriteDeadline(t)
}

func (c *movingConn) SetDeadline(t time.Time) error {
	c.reads.begin(t, 0)
	c.writes.begin(t, 0)
	return c.Conn.SetDeadline(t)
}

// checkedConn is a movingConn over a socket, which go-redis checks before it reuses the connection.
type checkedConn struct {
	*movingConn
	syscall.Conn
}

// moving wraps a connection. One with TLS has no socket to check, with or without this wrapper.
func moving(conn net.Conn) net.Conn {
	m := &movingConn{Conn: conn}
	if socket, ok := conn.(syscall.Conn); ok {
		return checkedConn{m, socket}
	}
	return m
}

// largePart is the fraction of a pool that large commands may use at once (1/largePart). Small ones
// always find a connection, and a few large ones fill any link.
const largePart = 4

// largeHook runs only a few large commands or pipelines at once. Others wait, at most until their
// context ends. Small ones don't wait.
type largeHook struct{ slots chan struct{} }

func newLargeHook(pool int) largeHook { return largeHook{make(chan struct{}, pool/largePart)} }

func (h largeHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h largeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.enter(ctx, cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		defer h.leave(cmd)
		return next(ctx, cmd)
	}
}

func (h largeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.enter(ctx, cmds...); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		defer h.leave(cmds...)
		return next(ctx, cmds)
	}
}

func (h largeHook) enter(ctx context.Context, cmds ...redis.Cmder) error {
	if !large(cmds) {
		return nil
	}
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h largeHook) leave(cmds ...redis.Cmder) {
	if large(cmds) {
		<-h.slots
	}
}

// large reports whether commands carry more than transfer.Small.
func large(cmds []redis.Cmder) bool {
	bytes := 0
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			switch a := arg.(type) {
			case string:
				bytes += len(a)
			case []byte:
				bytes += len(a)
			}
		}
	}
	return bytes > transfer.Small
}
