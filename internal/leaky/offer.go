package leaky

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
)

// Offer accepts a job if there is room: it writes the job's record and gives it a place in the
// line, in one step. Concurrent offers share a script call. It is idempotent by job id. After an
// error the job may or may not have been accepted; repeat the offer to find out (Accepted or
// Exists).
//
// If Offer.Join is set, the job's id is that of the caller's subscription. The shared job has an id
// of its own, Job.Of. Once a shared job has 1,000 subscriptions, the next offers share another job.
func (l *Line) Offer(ctx context.Context, o Offer) (Place, error) {
	e, err := l.encode(o)
	if err != nil {
		return Place{}, fmt.Errorf("line of %s: offer: %w", l.settings.Backend, err)
	}
	p, err := l.offers.Do(ctx, e)
	if err == nil {
		err = p.err
	}
	return p.Place, err
}

// Limits make the decision of the limits part of the offer script, at the same moment as the line's
// and before it. Package limits implements it. Safe for concurrent use.
type Limits interface {
	// Lua returns the definition of open_limits, which the offer script calls.
	Lua() string
	// Gather combines the charges (Offer.Charge) of one call: the first n of those given, at least
	// one. read evaluates the script's reply to them.
	Gather(charges []any) (n int, keys []string, args []any, read func(reply []int64) error)
}

// Limited makes the line's offers decide limits too, and returns the line. It must be called before
// the first Offer. It can't be used on Redis Cluster, where limits are on other nodes than the
// line.
func (l *Line) Limited(by Limits) *Line {
	l.limits, l.offerScript = by, redis.NewScript(prelude+by.Lua()+offerLua)
	return l
}

// placed is the result of one offer of a call.
type placed struct {
	Place
	err error
}

// encoded is a valid offer, ready for a shared script call.
type encoded struct {
	Offer
	id           string // of the job that gets a place
	record       []byte // of that job, without the script's part
	member       string // its entry in the client's list; "": none
	kind         string // one of the kinds below
	subscription string // id of its caller's subscription; "": the job isn't shared
	subRecord    []byte // of the subscription, without the script's part
	once         string // identifies the caller's only subscription; "": it may have several
}

// bytes returns the offer's size on the way to Redis.
func (e encoded) bytes() int { return len(e.record) }

// Kinds of jobs in the offer script.
const (
	kindOwned   = ""
	kindKeyed   = "key" // owned, and its id is from a client's Idempotency-Key
	kindShared  = "shared"
	kindRefresh = "refresh" // shared, unless one is under way
)

// maxSubscriptions bounds the subscriptions to a job: they end in one step, which takes Redis about
// 4 ms.
const maxSubscriptions = 1000

// maxSubscriptionsEach bounds the subscriptions of a client that may have several, so that no
// address takes up a whole job. The next one begins another job.
const maxSubscriptionsEach = 100

// maxJoin bounds Offer.Join, which becomes part of a key's name. It has room for a hash.
const maxJoin = 128

func (l *Line) encode(o Offer) (encoded, error) {
	uuid, ok := jobs.IDBytes(o.Job.ID)
	switch {
	case !(o.Weight > 0) || math.IsInf(1/o.Weight, 0) || math.IsInf(o.Weight, 0):
		return encoded{}, fmt.Errorf("weight %v of job %s isn't a positive number", o.Weight,
			o.Job.ID)
	case o.MaxAge <= 0 || o.Keep < time.Millisecond || o.StartWithin < 0:
		return encoded{}, fmt.Errorf("job %s: max age %v, keep %v or start within %v is out of "+
			"range", o.Job.ID, o.MaxAge, o.Keep, o.StartWithin)
	case !ok:
		return encoded{}, fmt.Errorf("%q isn't a job's id", o.Job.ID)
	case o.Charge != nil && l.limits == nil:
		return encoded{}, fmt.Errorf("job %s has a charge, but the line has no limits", o.Job.ID)
	case o.MaxStored < 0:
		return encoded{}, fmt.Errorf("job %s: its client may store %d bytes", o.Job.ID, o.MaxStored)
	case o.Refresh && (o.Join == "" || o.StartWithin > 0):
		return encoded{}, fmt.Errorf("job %s is a refresh, with a deadline or of nothing that "+
			"may be joined", o.Job.ID)
	case len(o.Join) > maxJoin:
		return encoded{}, fmt.Errorf("job %s: what it joins takes %d bytes, over %d", o.Job.ID,
			len(o.Join), maxJoin)
	}
	o.Job.Weight = o.Weight
	e := encoded{Offer: o, id: o.Job.ID, member: string(uuid[:])}
	if jobs.IsAnonymous(o.Job.Client) {
		e.member = "" // no caller can ask for the list
	}
	job := o.Job
	switch {
	case o.Join != "" && o.StartWithin == 0:
		subscription := job
		subscription.Payload = nil
		record, err := jobs.EncodeRecord(subscription)
		if err != nil {
			return encoded{}, err
		}
		e.kind, e.subscription, e.subRecord = kindShared, job.ID, record
		if o.Refresh {
			e.kind = kindRefresh
		}
		if job.Fingerprint == "" && !job.Anonymous() {
			e.once = "once:" + clientTag(job.Client+"\n"+job.Callback)
		}
		e.id, job.Callback, job.Fingerprint, job.Holds = jobs.NewID(l.settings.Backend), "", "",
			jobs.Holds{}
	case job.Fingerprint != "":
		e.kind = kindKeyed
	}
	record, err := jobs.EncodeRecord(job)
	e.record = record
	return e, err
}

// offer makes the offers of a batch, in as few script calls as their limits allow.
func (l *Line) offer(ctx context.Context, offers []encoded) ([]placed, error) {
	all := make([]placed, 0, len(offers))
	for len(all) < len(offers) {
		rest := offers[len(all):]
		n, places, err := l.offerTogether(ctx, rest)
		for i := range n {
			if err != nil {
				all = append(all, placed{err: err})
			} else {
				all = append(all, placed{Place: places[i]})
			}
		}
	}
	return all, nil
}

// offerTogether makes the first n of the offers in one script call.
func (l *Line) offerTogether(
	ctx context.Context, offers []encoded,
) (n int, places []Place, err error) {
	var charges []any
	for _, o := range offers {
		if o.Charge != nil {
			charges = append(charges, o.Charge)
		}
	}
	n, keys := len(offers), l.keys
	args := make([]any, 0, 7+10*len(offers))
	args = append(args, micros(l.settings.MaxWait), l.settings.ClientShare, micros(horizon),
		l.settings.listLife().Milliseconds(), l.subscriptions, l.subscriptionsEach)
	read := func([]int64) error { return nil }
	if len(charges) == 0 {
		args = append(args, 0)
	} else {
		fit, limits, texts, reader := l.limits.Gather(charges)
		if fit < len(charges) {
			n = 0
			for ; offers[n].Charge == nil || fit > 0; n++ {
				if offers[n].Charge != nil {
					fit--
				}
			}
		}
		keys, read = slices.Concat(l.keys, limits), reader
		args = append(append(args, len(texts)), texts...)
	}
	for _, o := range offers[:n] {
		args = l.appendOffer(args, o)
	}
	a, err := l.runOn(ctx, l.offerScript, keys, args...)
	if err != nil {
		return n, nil, err
	}
	waitingOn := a.text()
	places = make([]Place, n)
	for i := range places {
		places[i] = Place{Outcome: Outcome(a.text()), Position: a.number(), Wait: a.micros(),
			RetryAfter: a.micros(), WaitingOn: waitingOn}
		places[i].AcceptedAt, places[i].ID = a.when(), a.text()
	}
	if len(charges) > 0 {
		err = read(a.list().integers())
	}
	return n, places, cmp.Or(a.err, err)
}

// appendOffer appends the script's arguments for an offer.
func (l *Line) appendOffer(args []any, o encoded) []any {
	client := clientTag(o.Job.Client)
	// A flow is a client's jobs of one priority, so that its low ones don't hold up its high ones.
	args = append(args, o.id, o.record, client, client+":"+string(o.Job.Priority),
		strconv.FormatFloat(1/o.Weight, 'g', -1, 64), micros(o.StartWithin), micros(o.MaxAge),
		o.Keep.Milliseconds(), o.member)
	at := len(args)
	args = append(args, o.kind)
	kind := o.kind
	if o.MaxStored > 0 {
		kind = "$" + kind
		args = append(args, o.MaxStored)
	}
	if o.kind == kindShared || o.kind == kindRefresh {
		args = append(args, o.Join, o.subscription, o.subRecord, o.once)
	}
	if len(o.Others) > 0 {
		kind = ">" + kind
		others := []any{len(o.Others)}
		for _, id := range o.Others {
			backend, _ := jobs.ParseID(id)
			others = append(others, jobs.KeyPrefix(backend), id)
		}
		args = slices.Insert(args, at+1, others...)
	}
	if o.Charge != nil {
		kind = "#" + kind
	}
	args[at] = kind
	return args
}
