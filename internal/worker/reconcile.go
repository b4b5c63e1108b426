package worker

import (
	"context"
	"time"
)

// reconcileTime is how often this worker has the line's keys looked through. Together the workers do so every 5 s at most.
const reconcileTime = 10 * time.Second

// permitsTime is how often this worker looks for permits without a job. With leaky.PermitLease, and a call that fails, a permit comes back
// within 15 s.
const permitsTime = 3 * time.Second

// permitsAtOnce bounds the calls that follow each other without a rest, where there is much to give back.
const permitsAtOnce = 20

// maxTold is how many ids a log line names: enough to begin a search with.
const maxTold = 5

// reconcile has what Redis lost put right, now and then, until ctx ends. A worker that starts begins with it: it may well
// be the first after a failover.
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
		d.log.Debug("the line could not be reconciled", "error", err) // the dispatcher warns where Redis is away
		return
	}
	what := map[string][]string{}
	for _, repair := range r.Repairs {
		what[repair.Kind] = append(what[repair.Kind], repair.What)
		d.metrics.repairs.WithLabelValues(d.name, repair.Kind).Inc()
	}
	for kind, all := range what {
		d.log.Warn("Redis had lost something; it was put right", "repair", kind, "count", len(all), "what", all[:min(len(all), maxTold)])
	}
}

// returnPermits has permits of concurrency limits given back that belong to no job, until ctx ends.
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
