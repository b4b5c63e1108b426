package limits

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed limits.lua
var limitsLua string

//go:embed decide.lua
var decideLua string

// openLimits defines the function by which scripts decide on limits.
var openLimits = "local function open_limits(KEYS, args, now, first_text)\n" + limitsLua + "end\n"

var (
	decideText = openLimits + decideLua
	limits     = redis.NewScript(decideText)
)

// maxKeys bounds what one script call reads and writes: about a millisecond of Redis's time.
const maxKeys = 512

// keySlack is how long a key outlives its use, so that a TTL never ends a count early.
const keySlack = time.Second

// script is the source that all processes share: limits.lua on Redis.
type script struct {
	rdb   redis.UniversalClient
	clock func() int64  // µs since 1970, for tests; nil: Redis's own
	slack time.Duration // keySlack, except in tests with another clock than Redis's
}

// decide runs the batch in as few calls as maxKeys allows. Each answer has the error of its own
// call. A question whose caller has given up is not asked, and no call takes longer than its oldest
// question can wait, the time in the collector included. So no request is charged for an answer
// that arrives after its caller has given up.
func (s *script) decide(ctx context.Context, batch []*question) ([]answer, error) {
	answers := make([]answer, len(batch))
	from := 0
	for now := time.Now(); from < len(batch) && now.After(batch[from].by); from++ {
		answers[from].err = fmt.Errorf("%w: %w", ErrNotAsked, context.DeadlineExceeded)
	}
	if from == len(batch) {
		return answers, nil
	}
	ctx, cancel := context.WithDeadline(ctx, batch[from].by)
	defer cancel()
	for from < len(batch) {
		c := newCall(batch[from:])
		to := from + len(c.batch)
		if err := s.call(ctx, c, answers[from:to]); err != nil {
			for i := from; i < to; i++ {
				answers[i].err = err
			}
		}
		from = to
	}
	return answers, nil
}

// call runs the script once. A script that Redis doesn't know (after a restart) is sent in full.
// Nothing else is repeated, because a call whose reply was lost may have charged.
func (s *script) call(ctx context.Context, c *call, answers []answer) error {
	var now int64
	if s.clock != nil {
		now = s.clock()
	}
	args := c.encode(now, s.slack)
	values, err := s.run(ctx, "evalsha", limits.Hash(), c, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		values, err = s.run(ctx, "eval", decideText, c, args)
	}
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial", errors.Is(err, redis.ErrPoolTimeout):
		return fmt.Errorf("%w: %w", ErrNotAsked, err)
	case err != nil:
		return err
	}
	return c.decode(values, answers)
}

func (s *script) run(ctx context.Context, command, script string, c *call,
	numbers []byte) ([]int64, error) {
	args := make([]any, 0, 4+len(c.keys)+len(c.members))
	args = append(args, command, script, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	args = append(args, numbers)
	for _, member := range c.members {
		args = append(args, member)
	}
	cmd := redis.NewIntSliceCmd(ctx, args...) // Script.Run would allocate each integer
	if err := s.rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// call is one batch in the form that limits.lua takes.
type call struct {
	batch   []*question
	keys    []string // each once
	rules   []*Rule  // of the keys
	numbers []int64  // of the keys of each question, one question after the other; from 1
	members []string
}

// newCall takes as many of the questions as fit in one call. In a call, each key has one rule: if a
// rule and a scaled variant of it have the same key, the second of them goes into another call.
func newCall(questions []*question) *call {
	c := &call{}
	number := make(map[string]int64, 2*len(questions)) // of the keys
	for n, q := range questions {
		fits := n == 0 || len(c.keys)+len(q.keys) <= maxKeys
		for i := 0; fits && i < len(q.keys); i++ {
			k, known := number[q.keys[i]]
			fits = !known || c.rules[k-1] == q.rules[i] ||
				c.rules[k-1].parameters == q.rules[i].parameters
		}
		if !fits {
			break
		}
		for i, key := range q.keys {
			k, known := number[key]
			if !known {
				c.keys, c.rules = append(c.keys, key), append(c.rules, q.rules[i])
				k = int64(len(c.keys))
				number[key] = k
			}
			c.numbers = append(c.numbers, k)
		}
		c.batch = questions[:n+1]
	}
	return c
}

func (c *call) encode(now int64, slack time.Duration) []byte {
	ruleNumber := make(map[*Rule]int64, 8)
	refunds := int64(0)
	for _, q := range c.batch {
		if q.mode == refund {
			refunds++
		}
	}
	var parameters []int64
	ofKeys := make([]int64, len(c.rules))
	for i, rule := range c.rules {
		r, known := ruleNumber[rule]
		if !known {
			r = int64(len(ruleNumber) + 1)
			ruleNumber[rule] = r
			parameters = append(parameters, rule.parameters[:]...)
		}
		ofKeys[i] = r
	}
	out := make(numbers, 0, 64+12*len(parameters)+4*len(ofKeys)+10*len(c.batch)+4*len(c.numbers))
	out = append(out, '[')
	out.add(now, slack.Milliseconds(), int64(len(ruleNumber)), refunds, int64(len(c.batch))-refunds)
	out.add(parameters...)
	out.add(ofKeys...)
	if refunds > 0 {
		c.addQuestions(&out, true)
	}
	c.addQuestions(&out, false)
	out[len(out)-1] = ']'
	return out
}

// addQuestions adds the refunds, or all other questions.
func (c *call) addQuestions(out *numbers, refunds bool) {
	keys := c.numbers
	for _, q := range c.batch {
		n := len(q.keys)
		if refunds == (q.mode == refund) {
			if refunds {
				out.add(q.at, c.member(q), int64(n))
				for i, k := range keys[:n] {
					out.add(k, q.takes(i))
				}
			} else if slices.ContainsFunc(q.rules, (*Rule).special) {
				out.add(int64(q.mode)+2, c.member(q), int64(n))
				for i, k := range keys[:n] {
					if q.rules[i].limit.Shadow {
						k = -k
					}
					out.add(k, q.takes(i))
				}
			} else {
				out.add(int64(q.mode), q.cost, int64(n))
				out.add(keys[:n]...)
			}
		}
		keys = keys[n:]
	}
}

// special reports whether limits.lua needs more of the rule than its room.
func (r *Rule) special() bool {
	return r.limit.Shadow || r.limit.Bytes || r.kind == kindLog || r.kind == kindConcurrency
}

// hasAlso reports whether limits.lua returns fill.also for the rule.
func (r *Rule) hasAlso() bool {
	return r.kind == kindCounter || r.kind == kindLog
}

// member adds the question's member to the call and returns its number. It returns 0 if none of the
// question's rules needs one.
func (c *call) member(q *question) int64 {
	concurrent := func(r *Rule) bool { return r.kind == kindConcurrency }
	if q.member == "" || !slices.ContainsFunc(q.rules, concurrent) {
		return 0
	}
	c.members = append(c.members, q.member)
	return int64(len(c.members))
}

// numbers is a JSON list of integers.
type numbers []byte

func (n *numbers) add(values ...int64) {
	for _, v := range values {
		*n = append(strconv.AppendInt(*n, v, 10), ',')
	}
}

// decode fills in the answers to the questions of the batch.
func (c *call) decode(values []int64, answers []answer) error {
	short := fmt.Errorf("the script answered %d values, too few", len(values))
	next := func() (v int64, ok bool) {
		if len(values) == 0 {
			return 0, false
		}
		v, values = values[0], values[1:]
		return v, true
	}
	now, ok := next()
	also := make([]int64, len(c.keys))
	for k, r := range c.rules {
		if ok && r.hasAlso() {
			also[k], ok = next()
		}
	}
	if !ok {
		return short
	}
	keys, fills := c.numbers, make([]fill, len(c.numbers))
	for i, q := range c.batch {
		n := len(q.keys)
		a := &answers[i]
		a.now = now
		if q.mode != refund {
			spent, _ := next()
			a.spent, a.fills = spent == 1, fills[:n:n]
			for j, k := range keys[:n] {
				r, f := q.rules[j], &fills[j]
				if f.room, ok = next(); !ok {
					return short
				}
				f.also = also[k-1]
				if f.also == 0 && f.room < r.parameters[2] && r.kind == kindLog {
					f.also = now // the batch made the first entry
				}
				if r.limit.Shadow {
					if passed, _ := next(); passed == 1 {
						a.passed |= 1 << j
					}
				}
				if r.kind == kindLog && !a.spentOn(q, j) && !r.fits(*f, q.takes(j)) {
					f.wait, _ = next()
				}
			}
			fills = fills[n:]
		}
		keys = keys[n:]
	}
	if len(values) > 0 {
		return fmt.Errorf("the script answered %d values too many", len(values))
	}
	return nil
}
