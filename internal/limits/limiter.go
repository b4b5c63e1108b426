package limits

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/groupcommit"
	"github.com/forebay/forebay/internal/jobs"
)

const (
	// maxBatch is how many decisions share one script call: what 64 connections can ask at once.
	maxBatch = 64
	// decideWithin bounds a decision, so that there's an answer within a second whatever Redis does.
	decideWithin = 800 * time.Millisecond
	// refundShare of that time is added, on a cluster, for giving back what was charged before a refusal.
	refundShare = 5
	// MaxRules is how many limits may apply to one request; one script call holds them all.
	MaxRules = 64
)

// Errors of requests that no limit can be asked about. They are the caller's mistakes: nothing is spent.
var (
	ErrCost  = fmt.Errorf("a cost must be from 1 to %d, and bytes from 0", MaxAmount)
	ErrRules = fmt.Errorf("at most %d limits can apply to a request, each once", MaxRules)
)

// ErrNotAsked says of an error that Redis never got the question: nothing was charged or given back, and asking again is right.
var ErrNotAsked = errors.New("the store was not asked")

// Subject is who asks for what. A rule needs only the part that it counts for.
type Subject struct {
	Client    string // the client's id
	Address   string // as identity.Address says it: a v6 address is its network
	Operation string
	Tier      string
	Country   string // two letters, or a word for "not known"
}

// Request is one request, and the limits it must fit.
type Request struct {
	Rules   []*Rule
	Subject Subject
	Cost    int64 // 1 to MaxAmount; what it spends of every limit of requests
	// Bytes is what it spends of every limit of bytes, 0 to MaxAmount. With 0 none of those refuses.
	Bytes int64
	// Recall lets the Limiter refuse by what it heard a moment ago, without asking: until a refusal's
	// RetryAfter a request that takes no less can only be refused again, so a flood of them costs Redis
	// nothing. It is for requests that nothing else may answer, and for rules that nothing charged is
	// ever given back to. On a cluster, with regions, and in one process's memory it does nothing.
	Recall bool
	// Job is the job for which a limit of concurrency gives a permit, from the charge to the job's
	// end. "": such limits are only looked at. Along takes the permit and writes the job's record
	// in one step; a permit that Decide takes on a single Redis must be refunded if there is no job.
	Job string
}

// Takes is what the request takes of a limit: its bytes, its cost, or one place.
func (r Request) Takes(rule *Rule) int64 { return rule.takes(r.Cost, r.Bytes) }

func (r *Rule) takes(cost, bytes int64) int64 {
	switch {
	case r.limit.Bytes:
		return bytes
	case r.kind == kindConcurrency:
		return min(cost, 1) // a debit is below 0
	}
	return cost
}

// Limiter decides requests. Safe for concurrent use.
type Limiter struct {
	ask    func(context.Context, *question) (answer, error)
	shared bool          // the source is Redis
	split  bool          // a script can't touch two subjects: a cluster
	redis  *script       // of a shared source
	within time.Duration // bounds one decision
	places *places       // nil: nobody looks after places
	region Region        // nil: there are no others
	shares variants      // of rules, while the region is on its own

	refusals refusals
}

// heard takes in what a request that was sent then was answered.
func (l *Limiter) heard(r Request, a answer, sent time.Time) {
	if l.shared && !l.split && l.region == nil && (r.Recall || a.spent) {
		l.refusals.note(r, a, sent, time.Now())
	}
}

// recall is the refusal that is known to be the answer, if there is one.
func (l *Limiter) recall(r Request) (Verdict, bool) {
	if !r.Recall || !l.shared || l.split || l.region != nil {
		return Verdict{}, false
	}
	return l.refusals.recall(r, time.Now())
}

// question is what a source is asked: a request, or the part of one that concerns one subject.
type question struct {
	mode   mode
	cost   int64      // when spending, at most every enforced rule's capacity; of a refund also negative: a debit
	bytes  int64      // as cost, for rules that count bytes
	member string     // for whom permits of concurrency are; "": for nobody
	holds  jobs.Holds // its permits
	at     int64      // refund: when it was charged
	by     time.Time  // when the asker gives up
	rules  []*Rule
	keys   []string // of the rules
	place  []int    // of the rules in the request; nil: as here
}

type mode int64

const (
	peek   mode = 0 // these two as limits.lua knows them
	spend  mode = 1
	refund mode = 2
)

// answer is where the rules of a question stand after it.
type answer struct {
	now    int64  // by the source's clock
	spent  bool   // on all enforced rules, and on those shadow rules that had room; else on none
	passed uint64 // by shadow rules, by their place in the question: they were spent on
	fills  []fill // of the rules; none for a refund
	err    error
}

// MaxRules is at most the bits of answer.passed.
var _ [64 - MaxRules]struct{}

// takes is what the question takes of its i-th rule.
func (q *question) takes(i int) int64 { return q.rules[i].takes(q.cost, q.bytes) }

// spentOn reports whether the question's i-th rule was charged.
func (a *answer) spentOn(q *question, i int) bool {
	return a.spent && (!q.rules[i].limit.Shadow || a.passed&(1<<i) != 0)
}

// charged is what an allowed request has spent.
type charged struct {
	questions []*question
	answers   []answer
	by        *Limiter
	region    Region // that knows of it; nil: none
	returned  atomic.Bool
}

// New returns a Limiter that counts in Redis, together with all others on the same Redis.
// On a cluster the limits of different subjects lie on different nodes: a request that
// one of them refuses may for an instant be charged on others.
func New(rdb redis.UniversalClient, cluster bool) *Limiter {
	return newLimiter(&script{rdb: rdb, slack: keySlack}, cluster, decideWithin)
}

// NewAt is New on a single Redis by another clock than Redis's, for tests: what several regions do
// in an hour can be seen at once. Redis expires keys by its own clock all the same, so they outlive
// their use by an hour; and a decision may take 20 s, so that none fails on a busy machine. The
// clock must be safe for concurrent use.
func NewAt(rdb redis.UniversalClient, clock func() time.Time) *Limiter {
	now := func() int64 { return clock().UnixMicro() }
	return newLimiter(&script{rdb: rdb, clock: now, slack: time.Hour}, false, 20*time.Second)
}

func newLimiter(s *script, cluster bool, within time.Duration) *Limiter {
	l := &Limiter{shared: true, split: cluster, within: within, redis: s}
	if cluster {
		l.ask = func(ctx context.Context, q *question) (answer, error) {
			answers, _ := s.decide(ctx, []*question{q})
			return answers[0], answers[0].err
		}
		return l
	}
	shared := groupcommit.New(maxBatch, within, s.decide).Overlap(2)
	l.ask = func(ctx context.Context, q *question) (answer, error) {
		a, err := shared.Do(ctx, q)
		if err == nil {
			err = a.err
		}
		return a, err
	}
	return l
}

// Decide spends the request's cost on all of its limits, if every one has room for it, and else on none.
// It takes at most a second. An error other than ErrCost and ErrRules means that nobody knows: the request
// may have been charged, once, and can't be refunded. The end of ctx ends the wait, not a charge under way.
func (l *Limiter) Decide(ctx context.Context, r Request) (Verdict, error) {
	if v, ok := l.recall(r); ok {
		return v, nil
	}
	v, err := l.judge(ctx, r, spend)
	if err == nil && l.places != nil && len(v.places) > 0 && l.places.after(ctx, &v) {
		return l.judge(ctx, r, spend)
	}
	return v, err
}

// Peek says where the request's limits stand, and whether Decide would allow it. It spends nothing.
func (l *Limiter) Peek(ctx context.Context, r Request) (Verdict, error) {
	v, err := l.judge(ctx, r, peek)
	if err == nil && l.places != nil && len(v.places) > 0 && l.places.after(ctx, &v) {
		return l.judge(ctx, r, peek)
	}
	return v, err
}

// Refund gives back what an allowed request was charged, where it was charged, as far as it still counts: for work that
// was refused after all. Only the first call for a verdict does anything, even where it fails: the refund may have been carried out.
// After ErrNotAsked it wasn't, and the next call tries again. The end of ctx doesn't stop it.
func (l *Limiter) Refund(ctx context.Context, v Verdict) error { return l.Settle(ctx, v, 0) }

// Settle is Refund, but for a cost that stays spent: for work that came to less than it was charged for. Bytes, and a place of a limit of
// concurrency, are given back whole.
func (l *Limiter) Settle(ctx context.Context, v Verdict, cost int64) error {
	return v.charge.settle(ctx, cost, 1)
}

// settle gives back what was charged beyond a cost. It takes a part of the time of a decision.
func (c *charged) settle(ctx context.Context, cost int64, part time.Duration) error {
	if c == nil || c.returned.Swap(true) {
		return nil
	}
	by := c.by
	err := by.giveBack(ctx, c.questions, c.answers, cost, by.within/part)
	if errors.Is(err, ErrNotAsked) && len(c.questions) == 1 { // of many, others may have been carried out
		c.returned.Store(false)
		return err
	}
	if h := c.holds(); h.Apart && openKey(h) != "" && err == nil {
		by.redis.withdraw(ctx, h)
	}
	if c.region != nil {
		c.region.Spent(c.debits(-1, cost))
	}
	return err
}

func (l *Limiter) judge(ctx context.Context, r Request, m mode) (Verdict, error) {
	r, q, err := l.question(r, m)
	if err != nil {
		return Verdict{}, err
	}
	if len(q.rules) == 0 {
		return Verdict{Allowed: true}, nil
	}
	questions := []*question{q}
	apart := l.split && openKey(q.holds) != ""
	if l.split {
		questions = q.bySubject()
	}
	if apart {
		if err := l.redis.announce(ctx, q.holds, q.by); err != nil {
			return Verdict{}, fmt.Errorf("limits: permits: %w", err)
		}
	}
	sent := time.Now()
	answers, err := l.askAll(ctx, questions)
	if err != nil {
		return Verdict{}, fmt.Errorf("limits: %w", err)
	}
	if m == spend {
		l.heard(r, answers[0], sent)
	}
	v := verdict(r, questions, answers)
	if apart && v.charge == nil {
		l.redis.withdraw(ctx, q.holds)
	}
	if v.charge != nil {
		v.charge.by = l
		v.charge.tell(l.region)
	}
	return v, nil
}

// askAll asks one question after the other. When one is refused, what the others spent is given back and the
// rest is only looked at. When one fails or the caller leaves, it is given back too.
func (l *Limiter) askAll(ctx context.Context, questions []*question) ([]answer, error) {
	work := ctx
	if l.split {
		work = context.WithoutCancel(ctx) // a caller that leaves is seen between the questions
	}
	answers := make([]answer, 0, len(questions))
	refused := false
	for _, q := range questions {
		if refused {
			q.mode = peek
		}
		err := ctx.Err()
		var a answer
		if err == nil {
			a, err = l.ask(work, q)
		}
		if err != nil {
			return nil, errors.Join(err, l.giveBack(ctx, questions, answers, 0, l.within/refundShare))
		}
		answers = append(answers, a)
		if q.mode == spend && !a.spent && len(questions) > 1 {
			refused = true
			if err := l.giveBack(ctx, questions, answers, 0, l.within/refundShare); err != nil {
				return nil, err
			}
			for i := range answers {
				answers[i].unspend(questions[i])
			}
		}
	}
	return answers, nil
}

// giveBack refunds what the answered questions spent beyond a cost, as far as it can, even where the caller has left.
func (l *Limiter) giveBack(ctx context.Context, questions []*question, answers []answer, keep int64, within time.Duration) error {
	ctx = context.WithoutCancel(ctx)
	by := time.Now().Add(within)
	var failed error
	for i, a := range answers {
		if !a.spent {
			continue
		}
		q := questions[i].chargedBy(a)
		if len(q.keys) == 0 {
			continue // nothing but shadow limits without room
		}
		q.mode, q.cost, q.at, q.by = refund, max(0, q.cost-keep), a.now, by
		if _, err := l.ask(ctx, q); err != nil {
			failed = errors.Join(failed, fmt.Errorf("refund: %w", err))
		}
	}
	return failed
}

// chargedBy is q with those rules alone that a's spending was charged to.
func (q *question) chargedBy(a answer) *question {
	part := *q
	part.rules, part.keys = nil, nil
	for i := range q.rules {
		if a.spentOn(q, i) {
			part.rules, part.keys = append(part.rules, q.rules[i]), append(part.keys, q.keys[i])
		}
	}
	return &part
}

// unspend is the answer as if q hadn't been spent.
func (a *answer) unspend(q *question) {
	if !a.spent {
		return
	}
	for i, r := range q.rules {
		if a.spentOn(q, i) {
			a.fills[i].room += r.need(q.takes(i))
		}
	}
	a.spent, a.passed = false, 0
}
