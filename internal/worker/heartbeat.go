package worker

import (
	"context"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

const (
	// maxRenew bounds the leases that are renewed in one call. If one call fails, the others still
	// count.
	maxRenew = 256
	// renewAgain is the wait before a failed renewal is repeated. A lease outlives several.
	renewAgain = time.Second
)

// heartbeat renews the leases of all running attempts, until ctx ends.
func (d *drain) heartbeat(ctx context.Context) {
	next := leaky.RenewEvery
	for {
		sleep(ctx, next)
		if ctx.Err() != nil {
			return
		}
		next = leaky.RenewEvery
		for batch := range slices.Chunk(d.runs.held(), maxRenew) {
			if err := d.renew(batch); err != nil {
				d.log.Warn("leases could not be renewed", "jobs", len(batch), "error", err)
				next = renewAgain
			}
		}
	}
}

// renew renews some leases in one call, and ends the attempts that the line wants ended.
func (d *drain) renew(batch []*run) error {
	tickets := make([]jobs.Ticket, len(batch))
	for i, one := range batch {
		tickets[i] = one.ticket
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	sent := time.Now()
	said, err := d.line.Renew(ctx, d.owner, tickets)
	if err != nil {
		return err
	}
	for i, one := range batch {
		switch said[i] {
		case leaky.Held:
			d.runs.hold(one, sent)
		case leaky.Stop: // the published abort was missed
			d.runs.hold(one, sent)
			one.end(errCanceled)
		case leaky.Lost:
			one.end(errLost)
		}
	}
	return nil
}
