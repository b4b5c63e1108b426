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

// Offer asks for a place and, when there is one, writes the job's record and takes it, in one step. Concurrent
// offers share a script call. It is idempotent by job id. An error leaves open whether the job was accepted:
// the same offer again tells (Accepted or Exists). Where Offer.Join is set, the job's id is that of the caller's share: the job that waits
// has one that only Job.Of tells. Where that one has 1,000 shares, the next is in another job, and those after it in that.
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

// Limits are decided about in the offer script, before the line is asked and at the same time: package limits's. Safe for concurrent use.
type Limits interface {
	// Lua defines open_limits, as the script calls it.
	Lua() string
	// Gather puts the charges (Offer.Charge) of one call together: as many of those given as it can take, in their order and one at
	// least. read takes in the script's reply to them.
	Gather(charges []any) (n int, keys []string, args []any, read func(reply []int64) error)
}

// Limited has the line's offers bring limits along, and returns the line. It must be called before the first Offer. It is not for Redis
// Cluster, where limits lie on other nodes than the line.
func (l *Line) Limited(by Limits) *Line {
	l.limits, l.offerScript = by, redis.NewScript(prelude+by.Lua()+offerLua)
	return l
}

// placed is what one offer of a call came to.
type placed struct {
	Place
	err error
}

// encoded is an offer that is fit to share a script call: what is wrong with it has been told to its caller alone.
type encoded struct {
	Offer
	id     string // of the job that gets a place
	record []byte // of that one
	member string // what its client's list is given; "": nothing
	many   string // whether the job is for many: the words of the script
	share  string // id of its caller's share; "": none
	words  []byte // of the share's record
	once   string // by what the caller's one share in a job is known; "": it may have several
}

// bytes is what of it counts on the way to Redis.
func (e encoded) bytes() int { return len(e.record) }

// Words of the offer script.
const (
	forOne     = ""
	forKey     = "key" // for one, and its id is of a client's Idempotency-Key
	forShare   = "share"
	forRefresh = "refresh"
)

// maxShares bounds the shares in a job: their end is one step, and takes Redis some 4 ms.
const maxShares = 1000

// maxSharesEach bounds those of one client that may have several, so that no address fills a job: the next one begins another.
const maxSharesEach = 100

// maxJoin bounds Offer.Join, which is a key's name: a hash and more.
const maxJoin = 128

func (l *Line) encode(o Offer) (encoded, error) {
	uuid, ok := jobs.IDBytes(o.Job.ID)
	switch {
	case !(o.Weight > 0) || math.IsInf(1/o.Weight, 0) || math.IsInf(o.Weight, 0):
		return encoded{}, fmt.Errorf("weight %v of job %s isn't a positive number", o.Weight, o.Job.ID)
	case o.MaxAge <= 0 || o.Keep < time.Millisecond || o.StartWithin < 0:
		return encoded{}, fmt.Errorf("job %s: max age %v, keep %v or start within %v is out of range", o.Job.ID, o.MaxAge, o.Keep, o.StartWithin)
	case !ok:
		return encoded{}, fmt.Errorf("%q isn't a job's id", o.Job.ID)
	case o.Charge != nil && l.limits == nil:
		return encoded{}, fmt.Errorf("job %s brings limits to a line that knows none", o.Job.ID)
	case o.MaxStored < 0:
		return encoded{}, fmt.Errorf("job %s: its client may store %d bytes", o.Job.ID, o.MaxStored)
	case o.Refresh && (o.Join == "" || o.StartWithin > 0):
		return encoded{}, fmt.Errorf("job %s is a refresh, with a deadline or of nothing that may be joined", o.Job.ID)
	case len(o.Join) > maxJoin:
		return encoded{}, fmt.Errorf("job %s: what it joins takes %d bytes, over %d", o.Job.ID, len(o.Join), maxJoin)
	}
	o.Job.Weight = o.Weight
	e := encoded{Offer: o, id: o.Job.ID, member: string(uuid[:])}
	if jobs.IsAnonymous(o.Job.Client) {
		e.member = "" // nobody can ask for the list
	}
	job := o.Job
	switch {
	case o.Refresh:
		e.many, e.member, job.Callback = forRefresh, "", ""
	case o.Join != "" && o.StartWithin == 0:
		share := job
		share.Payload = nil
		words, err := jobs.EncodeRecord(share)
		if err != nil {
			return encoded{}, err
		}
		e.many, e.share, e.words = forShare, job.ID, words
		if job.Fingerprint == "" && !job.Anonymous() {
			e.once = "once:" + clientTag(job.Client+"\n"+job.Callback)
		}
		e.id, job.Callback, job.Fingerprint, job.Holds = jobs.NewID(l.settings.Backend), "", "", jobs.Holds{}
	case job.Fingerprint != "":
		e.many = forKey
	}
	record, err := jobs.EncodeRecord(job)
	e.record = record
	return e, err
}

// offer makes the offers of a batch, in as few calls of the script as their limits allow.
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

// offerTogether makes the first n of the offers in one call of the script.
func (l *Line) offerTogether(ctx context.Context, offers []encoded) (n int, places []Place, err error) {
	var charges []any
	for _, o := range offers {
		if o.Charge != nil {
			charges = append(charges, o.Charge)
		}
	}
	n, keys := len(offers), l.keys
	args := make([]any, 0, 7+10*len(offers))
	args = append(args, micros(l.settings.MaxWait), l.settings.ClientShare, micros(horizon), l.settings.listLife().Milliseconds(), l.shares, l.sharesEach)
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
		places[i] = Place{Outcome: Outcome(a.text()), Position: a.number(), Wait: a.micros(), RetryAfter: a.micros(), WaitingOn: waitingOn}
		places[i].AcceptedAt, places[i].Share = a.when(), a.text()
	}
	if len(charges) > 0 {
		err = read(a.list().integers())
	}
	return n, places, cmp.Or(a.err, err)
}

// appendOffer adds an offer as the script takes it.
func (l *Line) appendOffer(args []any, o encoded) []any {
	client := clientTag(o.Job.Client)
	// A flow is a client's jobs of one priority, so that its own low ones don't hold up its high ones.
	args = append(args, o.id, o.record, client, client+":"+string(o.Job.Priority),
		strconv.FormatFloat(1/o.Weight, 'g', -1, 64), micros(o.StartWithin), micros(o.MaxAge), o.Keep.Milliseconds(), o.member)
	signs := len(args)
	args = append(args, o.many)
	word := o.many
	if o.MaxStored > 0 && !o.Refresh {
		word = "$" + word
		args = append(args, o.MaxStored)
	}
	if o.many == forShare || o.many == forRefresh {
		args = append(args, o.Join, o.share, o.words, o.once)
	}
	if len(o.Others) > 0 {
		word = ">" + word
		others := []any{len(o.Others)}
		for _, id := range o.Others {
			backend, _ := jobs.ParseID(id)
			others = append(others, jobs.KeyPrefix(backend), id)
		}
		args = slices.Insert(args, signs+1, others...)
	}
	if o.Charge != nil {
		word = "#" + word
	}
	args[signs] = word
	return args
}
