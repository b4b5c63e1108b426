package limits

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// On Redis Cluster, the keys of a subject and those of a backend are on different nodes, and no
// script reaches both. So a request's limits are decided first, and then the line. If the line
// refuses the request, its charge is refunded. This leaves gaps:
//
//   - A duplicate request that arrives within the same few milliseconds can be charged for an
//     instant, or be refused because of what the first has just been charged. There is still only
//     one job, because its id is derived from the Idempotency-Key.
//   - For that instant, other requests too may be refused because of a charge that is about to be
//     refunded.
//   - A charge whose refund fails stays spent until its window ends (Verdict.Unreturned). A permit
//     is given back within seconds.
//
// There are no locks, and no request waits for another. A client whose duplicate request was
// refused tries again and finds the job.

// oneAfterTheOther is Along on a cluster.
func (l *Limiter) oneAfterTheOther(ctx context.Context, r Request,
	step func(*Part) (Ending, error)) (Verdict, error) {
	if r.Job != "" {
		// Duplicate requests have the same job's id. The one that gets no job must not give back
		// the permits of the other.
		r.Job += "~" + rand.Text()[:8]
	}
	v, err := l.Decide(ctx, r)
	if err != nil || !v.Allowed {
		return v, err
	}
	ending, err := step(&Part{holds: v.Holds()})
	if err != nil || ending == Taken {
		return v, err // after an error there may be a job, so the charge stands
	}
	v.Unreturned = v.charge.settle(ctx, 0, refundShare) // the client is waiting: in less time
	return v.Returned(r), nil
}

// A permit is open from before its charge until the script that writes the job's record confirms it
// (package leaky), and again from the job's end. leaky's ReturnPermits gives back the permits that
// stay open: their job has ended, a process died between the charge and the record, or a refund
// failed.

// openKey returns the key at which permits are noted as open, which is one of their job's backend.
// It returns "" if there are no permits, or if their holder isn't a job.
func openKey(h jobs.Holds) string {
	id, _, _ := strings.Cut(h.Member, "~")
	if backend, ok := jobs.ParseID(id); ok {
		return jobs.PermitsKey(backend)
	}
	return ""
}

// noteScript notes permits as open, by Redis's clock.
var noteScript = redis.NewScript(`
local t = redis.call('TIME')
local function note() return redis.pcall('ZADD', KEYS[1], t[1] * 1000000 + t[2], ARGV[1]) end
if type(note()) ~= 'number' then -- no script wrote the value at this key
  redis.call('DEL', KEYS[1])
  note()
end
return 1`)

// announce notes permits as open before they are taken. It gives up at the given time.
func (s *script) announce(ctx context.Context, h jobs.Holds, by time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	return noteScript.Run(ctx, s.rdb, []string{openKey(h)}, h.Text()).Err()
}

// withdraw removes the note that announce made. If it fails, ReturnPermits finds that the permits
// belong to no job.
func (s *script) withdraw(ctx context.Context, h jobs.Holds) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decideWithin/refundShare)
	defer cancel()
	_ = s.rdb.ZRem(ctx, openKey(h), h.Text()).Err()
}
