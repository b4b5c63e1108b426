package leaky

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// PermitLease is how long a permit may be held without a job on record. It is longer than a charge
// and the offer after it, each of which is given up after a second.
const PermitLease = 5 * time.Second

// maxPermits bounds the permits that one call looks at, so that it takes Redis a millisecond.
const maxPermits = 200

// ReturnPermits returns permits of concurrency limits that belong to no job of this backend, on
// Redis Cluster: their job has ended, a process died between the charge and the job's record, or a
// refund failed. On a single Redis there are none, because one script takes a permit and writes the
// job's record. It looks at no more than 200 permits. It reports how many of them never had a job
// (orphans) and whether there may be more. A permit of a job that hasn't ended stays, however old
// it is. A job whose offer reaches Redis later than PermitLease after the charge may lose its
// permit. It is idempotent, and any number of processes may call it.
func (l *Line) ReturnPermits(ctx context.Context) (orphans int64, more bool, err error) {
	a, err := l.run(ctx, permitsScript, micros(PermitLease), maxPermits)
	if err != nil {
		return 0, false, err
	}
	orphans = a.number()
	var open []any
	byKey := map[string][]any{}
	for len(a.values) > 0 && a.err == nil {
		text := a.text()
		open = append(open, text)
		holds := jobs.ParseHolds(text)
		for _, key := range holds.Keys {
			byKey[key] = append(byKey[key], holds.Member)
		}
	}
	if a.err != nil || len(open) == 0 {
		return orphans, false, a.err
	}
	_, err = l.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for key, members := range byKey {
			pipe.ZRem(ctx, key, members...)
		}
		return nil
	})
	if err == nil {
		err = l.rdb.ZRem(ctx, jobs.PermitsKey(l.settings.Backend), open...).Err()
	}
	if err != nil {
		err = fmt.Errorf("line of %s: permits: %w", l.settings.Backend, err)
	}
	return orphans, len(open) == maxPermits, err
}
