package leaky

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

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
	return l.offers.Do(ctx, e)
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

// offer is one shared call of the offer script.
func (l *Line) offer(ctx context.Context, offers []encoded) ([]Place, error) {
	args := make([]any, 0, 6+10*len(offers))
	args = append(args, micros(l.settings.MaxWait), l.settings.ClientShare, micros(horizon), l.settings.listLife().Milliseconds(), l.shares, l.sharesEach)
	for _, o := range offers {
		client := clientTag(o.Job.Client)
		// A flow is a client's jobs of one priority, so that its own low ones don't hold up its high ones.
		args = append(args, o.id, o.record, client, client+":"+string(o.Job.Priority),
			strconv.FormatFloat(1/o.Weight, 'g', -1, 64), micros(o.StartWithin), micros(o.MaxAge), o.Keep.Milliseconds(), o.member)
		if o.MaxStored > 0 && !o.Refresh {
			args = append(args, "$"+o.many, o.MaxStored)
		} else {
			args = append(args, o.many)
		}
		if o.many == forShare || o.many == forRefresh {
			args = append(args, o.Join, o.share, o.words, o.once)
		}
	}
	a, err := l.run(ctx, offerScript, args...)
	if err != nil {
		return nil, err
	}
	waitingOn := a.text()
	places := make([]Place, len(offers))
	for i := range places {
		places[i] = Place{Outcome: Outcome(a.text()), Position: a.number(), Wait: a.micros(), RetryAfter: a.micros(), WaitingOn: waitingOn}
		places[i].AcceptedAt, places[i].Share = a.when(), a.text()
	}
	return places, a.err
}
