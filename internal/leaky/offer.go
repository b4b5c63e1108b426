package leaky

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"forebay/internal/jobs"
)

// Offer asks for a place and, when there is one, writes the job's record and takes it, in one step. Concurrent
// offers share a script call. It is idempotent by job id. An error leaves open whether the job was accepted:
// the same offer again tells (Accepted or Exists).
func (l *Line) Offer(ctx context.Context, o Offer) (Place, error) {
	e, err := encode(o)
	if err != nil {
		return Place{}, fmt.Errorf("line of %s: offer: %w", l.settings.Backend, err)
	}
	return l.offers.Do(ctx, e)
}

// encoded is an offer that is fit to share a script call: what is wrong with it has been told to its caller alone.
type encoded struct {
	Offer
	record []byte
}

func encode(o Offer) (encoded, error) {
	switch {
	case !(o.Weight > 0) || math.IsInf(1/o.Weight, 0) || math.IsInf(o.Weight, 0):
		return encoded{}, fmt.Errorf("weight %v of job %s isn't a positive number", o.Weight, o.Job.ID)
	case o.MaxAge <= 0 || o.Keep < time.Millisecond || o.StartWithin < 0:
		return encoded{}, fmt.Errorf("job %s: max age %v, keep %v or start within %v is out of range", o.Job.ID, o.MaxAge, o.Keep, o.StartWithin)
	}
	o.Job.Weight = o.Weight
	record, err := jobs.EncodeRecord(o.Job)
	return encoded{Offer: o, record: record}, err
}

// offer is one shared call of the offer script.
func (l *Line) offer(ctx context.Context, offers []encoded) ([]Place, error) {
	args := make([]any, 0, 3+8*len(offers))
	args = append(args, micros(l.settings.MaxWait), l.settings.ClientShare, micros(horizon))
	for _, o := range offers {
		client := clientTag(o.Job.Client)
		// A flow is a client's jobs of one priority, so that its own low ones don't hold up its high ones.
		args = append(args, o.Job.ID, o.record, client, client+":"+string(o.Job.Priority),
			strconv.FormatFloat(1/o.Weight, 'g', -1, 64), micros(o.StartWithin), micros(o.MaxAge), o.Keep.Milliseconds())
	}
	a, err := l.run(ctx, offerScript, args...)
	if err != nil {
		return nil, err
	}
	now, waitingOn := a.when(), a.text()
	places := make([]Place, len(offers))
	for i := range places {
		places[i] = Place{Outcome: Outcome(a.text()), Position: a.number(), Wait: a.micros(), RetryAfter: a.micros(), WaitingOn: waitingOn}
		if places[i].Outcome == Accepted {
			places[i].AcceptedAt = now
		}
	}
	return places, a.err
}
