package limits

import (
	"context"
	"crypto/rand"
)

// On Redis Cluster the keys of a subject and those of a backend lie on different nodes, and no script reaches both. So a request's limits are
// decided first, then step does the rest, and where that came to nothing the charge is given back. That leaves gaps:
//
//   - A duplicate request with the same Idempotency-Key that comes within the same few milliseconds can be charged for an instant, or refused
//     by what the first has just charged. There is one job all the same: its id is derived from the key.
//   - For that instant others too may be refused by what is about to be given back.
//   - A charge whose refund fails stays spent until its window ends (Verdict.Unreturned). A permit comes back within seconds.
//
// There are no locks, and nothing waits for another request: a client whose duplicate was refused tries again, and finds the job.

// oneAfterTheOther is Along on a cluster.
func (l *Limiter) oneAfterTheOther(ctx context.Context, r Request, step func(*Part) (Ending, error)) (Verdict, error) {
	if r.Job != "" {
		// Duplicates have one job's id: the one that comes to nothing must not give back the permits of the other.
		r.Job += "~" + rand.Text()[:8]
	}
	v, err := l.Decide(ctx, r)
	if err != nil || !v.Allowed {
		return v, err
	}
	ending, err := step(&Part{holds: v.Holds()})
	if err != nil || ending == Taken {
		return v, err // on an error nobody knows: the charge stands
	}
	v.Unreturned = v.charge.settle(ctx, 0, refundShare) // its client waits for the answer
	return v.Returned(r), nil
}
