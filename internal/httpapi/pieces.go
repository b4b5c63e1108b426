package httpapi

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/transfer"
	"github.com/forebay/forebay/internal/web"
)

const (
	// piece is how much of a large result is in memory at a time.
	piece = transfer.Small
	// pieceTime is how long reads of a piece are repeated while the store fails: a failover takes
	// seconds, and a client whose answer is cut off must start over.
	pieceTime = 10 * time.Second
	// pieceRest is the time from one try to the next.
	pieceRest = 250 * time.Millisecond
)

// Why a result ended early, in metrics. A client that leaves isn't counted.
const (
	cutSlow  = "slow"  // it was read too slowly
	cutGone  = "gone"  // it was removed meanwhile
	cutStore = "store" // Redis failed for pieceTime
)

// sendResult answers with a succeeded job's result. One over a piece is read from Redis while its
// client reads it, and takes the memory of one piece. If it returns an error, nothing has been
// written. A result that later can't be read to its end stops before its Content-Length, and its
// connection is closed.
func (c *call) sendResult(status int, line Line, look leaky.Look) error {
	meta, id := look.Standing.Result, look.Job.Source()
	size := int(meta.Size)
	if err := c.reserve(nil, min(size, piece)); err != nil {
		return err
	}
	// Once the job's record has expired, there may be another job with its id and another result.
	until := time.Now().Add(look.Standing.ExpiresAt.Sub(look.Now) - web.StoreTime)
	read := func(from int) ([]byte, error) {
		if size <= piece {
			return line.Result(c.Ctx, id)
		}
		return line.ResultPart(c.Ctx, id, int64(from), int64(min(size-from, piece)))
	}
	part, err := read(0)
	switch {
	case errors.Is(err, leaky.ErrNoResult):
		return resultGone()
	case err != nil:
		return web.StoreError(err)
	}
	c.describe(meta.ContentType, meta.Fields)
	if size <= piece {
		c.Bytes(status, meta.ContentType, part)
		return nil
	}
	if !c.HeadOf(status, meta.ContentType, size) {
		return nil
	}
	control := http.NewResponseController(c.W)
	for sent := 0; ; {
		// A test's writer may have no deadlines.
		_ = control.SetWriteDeadline(time.Now().Add(c.s.patience(len(part))))
		n, err := c.W.Write(part)
		if sent += n; err != nil || sent == size {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.s.metrics.cut.WithLabelValues(cutSlow).Inc()
			}
			return nil // any other error means that the client left
		}
		part, err = c.insist(func() ([]byte, error) { return read(sent) })
		switch {
		case errors.Is(err, leaky.ErrNoResult), err == nil && time.Now().After(until):
			c.s.metrics.cut.WithLabelValues(cutGone).Inc()
			return nil
		case err != nil:
			_ = c.StoreFailed(err) // it is logged
			c.s.metrics.cut.WithLabelValues(cutStore).Inc()
			return nil
		}
	}
}

// insist repeats a failed read from the store for up to pieceTime. Each read has web.StoreTime.
func (c *call) insist(read func() ([]byte, error)) ([]byte, error) {
	for end := time.Now().Add(pieceTime); ; {
		c.Renew(0)
		part, err := read()
		if err == nil || errors.Is(err, leaky.ErrNoResult) || time.Now().After(end) {
			return part, err
		}
		select {
		case <-time.After(pieceRest):
		case <-c.R.Context().Done():
			return nil, err
		}
	}
}
