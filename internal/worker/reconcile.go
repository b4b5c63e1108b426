package worker

import (
	"context"
	"time"
)

// reconcileTime is how often this worker checks the line's keys. All workers together do so every
// 5 s at most.
const reconcileTime = 10 * time.Second

// permitsTime is how often this worker looks for permits without a job. With leaky.PermitLease
// added, such a permit is returned within 15 s, even if one call fails.
const permitsTime = 3 * time.Second

// permitsAtOnce bounds the calls in a row while there are many permits to return.
const permitsAtOnce = 20

// maxLogged is how many ids a log line names: enough to begin a search.
const maxLogged = 5

// reconcile regularly repairs keys that Redis has lost, until ctx ends. The first time is at the
// worker's start, which may follow a failover.
func (d *drain) reconcile(ctx context.Context) {
	for ctx.Err() == nil {
		d.reconcileOnce()
		sleep(ctx, reconcileTime)
	}
}

func (d *drain) reconcileOnce() {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	r, err := d.line.Reconcile(ctx)
	if err != nil {
		// The dispatcher warns if Redis is unavailable.
		d.log.Debug("the line could not be reconciled", "error", err)
		return
	}
	what := map[string][]string{}
	for _, repair := range r.Repairs {
		what[repair.Kind] = append(what[repair.Kind], repair.What)
		d.metrics.repairs.WithLabelValues(d.name, repair.Kind).Inc()
	}
	for kind, all := range what {
		d.log.Warn("Redis had lost something; it was put right", "repair", kind, "count", len(all),
			"what", all[:min(len(all), maxLogged)])
	}
}

// returnPermits returns permits of concurrency limits that belong to no job, until ctx ends.
func (d *drain) returnPermits(ctx context.Context) {
	for ctx.Err() == nil {
		d.returnPermitsOnce()
		sleep(ctx, permitsTime)
	}
}

func (d *drain) returnPermitsOnce() {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	found := int64(0)
	for range permitsAtOnce {
		orphans, more, err := d.line.ReturnPermits(ctx)
		found += orphans
		if err != nil {
			d.log.Debug("permits could not be looked after", "error", err)
		}
		if err != nil || !more {
			break
		}
	}
	if found > 0 {
		d.log.Info("permits of limits were taken for no job; they were given back", "count", found)
	}
}
