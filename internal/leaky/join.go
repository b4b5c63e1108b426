package leaky

import (
	"context"
	"fmt"
)

// Join gives the offered job a share in a job of the same Join that waits or runs, where there is one: Joined. Else nothing is written:
// Alone; so also where it has 1,000 shares already, and where the offered job has StartWithin. Exists: a job of this id is on record. It is idempotent by job id.
func (l *Line) Join(ctx context.Context, o Offer) (Place, error) {
	e, err := l.encode(o)
	if err == nil && (o.Join == "" || o.Refresh) {
		err = fmt.Errorf("job %s names nothing to join, or is a refresh", o.Job.ID)
	}
	if err != nil {
		return Place{}, fmt.Errorf("line of %s: join: %w", l.settings.Backend, err)
	}
	if e.many != forShare {
		return Place{Outcome: Alone}, nil
	}
	e.many, e.record = forJoin, nil // it isn't placed
	return l.offers.Do(ctx, e)
}
