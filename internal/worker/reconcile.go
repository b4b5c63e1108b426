package worker

import (
	"context"
	"time"
)

// reconcileTime is how often this worker has the line's keys looked through. Together the workers do so every 5 s at most.
const reconcileTime = 10 * time.Second

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
