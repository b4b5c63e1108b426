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
	// maxBatch is how many decisions share one script call: those of 64 connections.
	maxBatch = 64
	// decideWithin bounds a decision, so that its request is always answered within a second.
	decideWithin = 800 * time.Millisecond
	// refundShare is the part of decideWithin, a fifth, that a refund on a cluster may add to it.
	refundShare = 5
	// MaxRules is how many limits may apply to one request. One script call decides on all of them.
	MaxRules = 64
)

// Errors of requests that can't be decided. They are mistakes of the caller, and nothing is spent.
var (
	ErrCost  = fmt.Errorf("a cost must be from 1 to %d, and bytes from 0", MaxAmount)
	ErrRules = fmt.Errorf("at most %d limits can apply to a request, each once", MaxRules)
)

// ErrNotAsked is wrapped by errors of calls that never reached Redis. Nothing was charged or given
// back, so the call may be repeated.
var ErrNotAsked = errors.New("the store was not asked")

// Subject is the client of a request and the operation that it asks for. A rule needs only the part
// that it counts for.
type Subject struct {
	Client    string // the client's id
	Address   string // as identity.Address returns it: of a v6 address, its network
	Operation string
	Tier      string
	Country   string // two letters, or a word for "not known"
}

// Request is one request, with the limits that it must fit.
type Request struct {
	Rules   []*Rule
	Subject Subject
	Cost    int64 // 1 to MaxAmount; spent of every limit that counts requests
	// Bytes is spent of every limit that counts bytes, 0 to MaxAmount. With 0, none of them
	// refuses.
	Bytes int64
	// Recall allows the Limiter to refuse by a remembered refusal, without a call to Redis. Until
	// its RetryAfter, a request that takes no less can only be refused again, so a flood of them
	// costs Redis nothing. Set it for requests on which the limits alone decide, and for rules
	// whose charges are never refunded. It has no effect on a cluster, with regions, or in one
	// process's memory.
	Recall bool
	// Job is the job for which a concurrency limit gives a permit, from the charge to the job's
	// end. If it is "", the request takes no permit, but such a limit refuses it while it is full.
	// Along takes the permit and writes the job's record in one step. A permit that Decide takes on
	// a single Redis must be refunded if there is no job.
	Job string
}

// Takes returns what the request takes of a limit: its bytes, its cost, or one permit.
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
	ask     func(context.Context, *question) (answer, error)
	shared  bool          // the source is Redis
	split   bool          // a script can't touch two subjects: a cluster
	redis   *script       // of a shared source
	within  time.Duration // bounds one decision
	permits *permits      // nil: permits of jobs that have ended are not looked for
	region  Region        // nil: there are no others
	shares  variants      // of rules, while the region is on its own

	refusals refusals
}

// remember notes the answer to a request that was sent at the given time.
func (l *Limiter) remember(r Request, a answer, sent time.Time) {
	if l.shared && !l.split && l.region == nil && (r.Recall || a.spent) {
		l.refusals.note(r, a, sent, time.Now())
	}
}

// recall returns the refusal that Redis would give, if it is known.
func (l *Limiter) recall(r Request) (Verdict, bool) {
	if !r.Recall || !l.shared || l.split || l.region != nil {
		return Verdict{}, false
	}
	return l.refusals.recall(r, time.Now())
}

// question is a request as a source takes it, or the part of a request that concerns one subject.
type question struct {
	mode   mode
	cost   int64      // to spend: at most each enforced rule's capacity; a refund: < 0 is a debit
	bytes  int64      // as cost, for rules that count bytes
	member string     // the holder of permits; "": none are taken
	holds  jobs.Holds // its permits
	at     int64      // refund: when it was charged
	by     time.Time  // when the caller gives up
	rules  []*Rule
	keys   []string // of the rules
	index  []int    // of the rules in the request; nil: the same as here
}

type mode int64

const (
	peek   mode = 0 // limits.lua has the same numbers for these two
	spend  mode = 1
	refund mode = 2
)

// answer is where the rules of a question stand after it.
type answer struct {
	now    int64  // by the source's clock
	spent  bool   // on all enforced rules, and on the shadow rules with room; false: on none
	passed uint64 // the shadow rules that were spent on: a bit for each rule of the question
	fills  []fill // of the rules; none for a refund
	err    error
}

// answer.passed has a bit for each of MaxRules.
var _ [64 - MaxRules]struct{}

// takes returns what the question takes of its i-th rule.
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
	region    Region // the region to which it was reported; nil: none
	returned  atomic.Bool
}

// New returns a Limiter that counts in Redis, together with all others on the same Redis. On a
// cluster, the limits of different subjects are on different nodes, and a request that one of them
// refuses may be charged to others for an instant.
func New(rdb redis.UniversalClient, cluster bool) *Limiter {
	return newLimiter(&script{rdb: rdb, slack: keySlack}, cluster, decideWithin)
}

// NewAt is New on a single Redis with another clock than Redis's. It is for tests, which can so
// simulate an hour of several regions. Redis still expires keys by its own clock, so they outlive
// their use by an hour. A decision may take 20 s, so that none fails on a busy machine. The clock
// must be safe for concurrent use.
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

// Decide spends the request's cost on all of its limits if each of them has room for it, otherwise
// on none. It takes at most a second. After an error other than ErrCost and ErrRules, the outcome
// is unknown: the request may have been charged, once, and can't be refunded. The end of ctx ends
// the wait, but not a charge under way.
func (l *Limiter) Decide(ctx context.Context, r Request) (Verdict, error) {
	if v, ok := l.recall(r); ok {
		return v, nil
	}
	v, err := l.judge(ctx, r, spend)
	if err == nil && l.freed(ctx, &v) {
		return l.judge(ctx, r, spend)
	}
	return v, err
}

// Peek returns where the request's limits stand, and whether Decide would allow it. It spends
// nothing.
func (l *Limiter) Peek(ctx context.Context, r Request) (Verdict, error) {
	v, err := l.judge(ctx, r, peek)
	if err == nil && l.freed(ctx, &v) {
		return l.judge(ctx, r, peek)
	}
	return v, err
}

// Refund gives back what an allowed request was charged, as far as it still counts. It is for work
// that is refused after the charge. Only the first call for a verdict has an effect, even if it
// fails, because the refund may have been carried out. After ErrNotAsked it wasn't, and the next
// call tries again. The end of ctx doesn't stop it.
func (l *Limiter) Refund(ctx context.Context, v Verdict) error { return l.Settle(ctx, v, 0) }

// Settle is Refund, except that the given cost stays spent. It is for work that cost less than it
// was charged. Bytes, and permits of concurrency limits, are given back whole.
func (l *Limiter) Settle(ctx context.Context, v Verdict, cost int64) error {
	return v.charge.settle(ctx, cost, 1)
}

// settle gives back what was charged beyond a cost. It takes at most 1/part of the time that a
// decision may take.
func (c *charged) settle(ctx context.Context, cost int64, part time.Duration) error {
	if c == nil || c.returned.Swap(true) {
		return nil
	}
	by := c.by
	err := by.giveBack(ctx, c.questions, c.answers, cost, by.within/part)
	if errors.Is(err, ErrNotAsked) && len(c.questions) == 1 { // of several, some may have succeeded
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
		l.remember(r, answers[0], sent)
	}
	v := verdict(r, questions, answers)
	if apart && v.charge == nil {
		l.redis.withdraw(ctx, q.holds)
	}
	if v.charge != nil {
		v.charge.by = l
		v.charge.report(l.region)
	}
	return v, nil
}

// askAll asks one question after the other. If one is refused, the charges of the earlier ones are
// given back, and the later ones are asked without spending. If one fails or ctx ends, the charges
// are given back too.
func (l *Limiter) askAll(ctx context.Context, questions []*question) ([]answer, error) {
	work := ctx
	if l.split {
		work = context.WithoutCancel(ctx) // the end of ctx is noticed between the questions
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
			back := l.giveBack(ctx, questions, answers, 0, l.within/refundShare)
			return nil, errors.Join(err, back)
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

// giveBack refunds what the answered questions spent beyond a cost. The end of ctx doesn't stop it,
// and after an error it continues with the other questions.
func (l *Limiter) giveBack(ctx context.Context, questions []*question, answers []answer,
	keep int64, within time.Duration) error {
	ctx = context.WithoutCancel(ctx)
	by := time.Now().Add(within)
	var failed error
	for i, a := range answers {
		if !a.spent {
			continue
		}
		q := questions[i].chargedBy(a)
		if len(q.keys) == 0 {
			continue // only shadow limits, all without room
		}
		q.mode, q.cost, q.at, q.by = refund, max(0, q.cost-keep), a.now, by
		if _, err := l.ask(ctx, q); err != nil {
			failed = errors.Join(failed, fmt.Errorf("refund: %w", err))
		}
	}
	return failed
}

// chargedBy returns q with only the rules that a charged.
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

// unspend changes the answer to one without the charge of q.
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
