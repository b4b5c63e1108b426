package leaky

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// At makes every script of the line run at the time that now gives, in µs, instead of Redis's.
func (l *Line) At(now func() int64) *Line {
	l.now = func() any { return now() }
	return l
}

// LookForTypes makes the next error over a key's type check the keys, however short ago the last
// check was.
func (l *Line) LookForTypes() {
	l.suspects.mu.Lock()
	defer l.suspects.mu.Unlock()
	l.suspects.until = time.Time{}
}

// MaxSubscriptions sets the most subscriptions to a job of this line, and of one client that may
// have several.
func (l *Line) MaxSubscriptions(n, each int) *Line {
	l.subscriptions, l.subscriptionsEach = n, each
	return l
}

// OfferAll makes the offers in one script call, as concurrent callers would.
func (l *Line) OfferAll(ctx context.Context, offers []Offer) ([]Place, error) {
	batch := make([]encoded, len(offers))
	for i, o := range offers {
		e, err := l.encode(o)
		if err != nil {
			return nil, err
		}
		batch[i] = e
	}
	placed, err := l.offer(ctx, batch)
	places := make([]Place, len(placed))
	for i, p := range placed {
		places[i], err = p.Place, cmp.Or(err, p.err)
	}
	return places, err
}

// Bytes returns the bytes of an offer's job that count for Offer.MaxStored.
func (l *Line) Bytes(o Offer) (int64, error) {
	e, err := l.encode(o)
	return int64(e.bytes()), err
}

// Watched returns the number of watched jobs.
func (l *Listener) Watched() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watching)
}

// ClientTag returns the client's name in the line's keys.
func ClientTag(client string) string { return clientTag(client) }

// How the drain is paced.
const (
	Horizon  = horizon
	MaxGrant = maxGrant
	Grace    = grace
	Late     = late
)

// RedisAt returns Redis's time (µs) at a moment of the host's, according to the clock.
func (c *Clock) RedisAt(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.at(t))
}

// LookAll looks at the jobs in one script call, as concurrent callers would.
func (l *Line) LookAll(ctx context.Context, ids []string) ([]Look, []error) {
	found, err := l.look(ctx, ids)
	looks, errs := make([]Look, len(ids)), make([]error, len(ids))
	for i := range ids {
		if err != nil {
			errs[i] = err
			continue
		}
		looks[i], errs[i] = found[i].Look, found[i].err
	}
	return looks, errs
}

// Age makes the last reading of a backend older by d.
func (h *Healths) Age(backend string, d time.Duration) {
	last := h.last[backend].Load()
	h.last[backend].Store(&healthReading{last.Health, last.at.Add(-d)})
}

// sources has the scripts' own parts, by name.
var sources = map[string]string{"offer": offerLua, "release": releaseLua, "start": startLua,
	"renew": renewLua, "settle": settleLua,
	"cancel": cancelLua, "look": where + lookLua, "purge": purgeLua, "mine": where + mineLua,
	"due": dueLua, "explain": statusFunction + where + explainLua,
	"tune": tuneLua, "status": statusLua, "health": healthLua,
	"list": walk + listLua, "redrive": redriveLua, "preview": previewLua, "books": booksLua,
	"reconcile": walk + reconcileLua, "permits": permitsLua}

// IsCall reports whether the command calls the script of that name, by its digest or its text.
func IsCall(name string, cmd redis.Cmder) bool {
	if len(cmd.Args()) < 2 {
		return false
	}
	text := prelude + sources[name]
	return cmd.Args()[1] == redis.NewScript(text).Hash() || cmd.Args()[1] == text
}
