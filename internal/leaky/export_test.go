package leaky

import "context"

// At makes every script of the line run at the time that now gives, in µs, instead of Redis's.
func (l *Line) At(now func() int64) *Line {
	l.now = func() any { return now() }
	return l
}

// OfferAll makes the offers in one script call, as concurrent callers would.
func (l *Line) OfferAll(ctx context.Context, offers []Offer) ([]Place, error) {
	batch := make([]encoded, len(offers))
	for i, o := range offers {
		e, err := encode(o)
		if err != nil {
			return nil, err
		}
		batch[i] = e
	}
	return l.offer(ctx, batch)
}

// ClientTag is the client's name in the line's keys.
func ClientTag(client string) string { return clientTag(client) }

// What the drain is paced by.
const (
	Horizon  = horizon
	MaxGrant = maxGrant
	Grace    = grace
	Late     = late
)
