package admission

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed limits.lua
var limitsLua string

var limits = redis.NewScript(limitsLua)

// maxKeys bounds what one script call reads and writes: about a millisecond of Redis's time.
const maxKeys = 512

// keySlack is how long a key outlives its use, so that a TTL never ends a count early.
const keySlack = time.Second

// script is the source that all processes share: limits.lua on Redis.
type script struct {
	rdb   redis.UniversalClient
	clock func() int64  // µs since 1970, for tests; nil: Redis's own
	slack time.Duration // keySlack but in tests, whose clocks don't run with Redis's
}

// decide runs the batch in as few calls as maxKeys allows. An answer has its own error where only its call failed.
// A question whose asker has given up is not asked, and no call outlasts the patience of its oldest: the wait in
// the collector counts too, and nobody is charged for an answer that came too late to be heard.
func (s *script) decide(ctx context.Context, batch []*question) ([]answer, error) {
	answers := make([]answer, len(batch))
	from := 0
	for now := time.Now(); from < len(batch) && now.After(batch[from].by); from++ {
		answers[from].err = context.DeadlineExceeded
	}
	if from == len(batch) {
		return answers, nil
	}
	ctx, cancel := context.WithDeadline(ctx, batch[from].by)
	defer cancel()
	for from < len(batch) {
		to, keys := from+1, len(batch[from].keys)
		for ; to < len(batch) && keys+len(batch[to].keys) <= maxKeys; to++ {
			keys += len(batch[to].keys)
		}
		if err := s.call(ctx, batch[from:to], answers[from:to]); err != nil {
			for i := from; i < to; i++ {
				answers[i].err = err
			}
		}
		from = to
	}
	return answers, nil
}

// call runs the script once. A script that Redis doesn't know (after a restart) is sent whole;
// nothing else is repeated, for a lost reply may stand for a charge.
func (s *script) call(ctx context.Context, batch []*question, answers []answer) error {
	c := s.encode(batch)
	values, err := s.run(ctx, "evalsha", limits.Hash(), c)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		values, err = s.run(ctx, "eval", limitsLua, c)
	}
	if err != nil {
		return err
	}
	return c.decode(values, batch, answers)
}

func (s *script) run(ctx context.Context, command, script string, c *call) ([]int64, error) {
	args := make([]any, 0, 4+len(c.keys))
	args = append(args, command, script, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	cmd := redis.NewIntSliceCmd(ctx, append(args, c.args)...) // unlike Script.Run's, without an allocation per integer
	if err := s.rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// call is one batch as limits.lua takes it.
type call struct {
	keys    []string // each once
	numbers []int64  // of the keys of each question in turn, from 1
	args    []byte
}

func (s *script) encode(batch []*question) *call {
	c := &call{}
	number := make(map[string]int64, 2*len(batch)) // of the keys
	ruleNumber := make(map[*Rule]int64, 8)
	var rules, ofKeys []int64 // as ARGV[1] has them
	refunds := int64(0)
	for _, q := range batch {
		if q.mode == refund {
			refunds++
		}
		for i, key := range q.keys {
			n, ok := number[key]
			if !ok {
				rule := q.rules[i]
				r, ok := ruleNumber[rule]
				if !ok {
					r = int64(len(ruleNumber) + 1)
					ruleNumber[rule] = r
					p := rule.arithmetic.parameters()
					rules = append(rules, p[:]...)
				}
				ofKeys = append(ofKeys, r)
				c.keys = append(c.keys, key)
				n = int64(len(c.keys))
				number[key] = n
			}
			c.numbers = append(c.numbers, n)
		}
	}

	var now int64
	if s.clock != nil {
		now = s.clock()
	}
	c.args = make([]byte, 0, 64+12*len(rules)+4*len(ofKeys)+8*len(batch)+4*len(c.numbers))
	c.args = append(c.args, '[')
	c.add(now, s.slack.Milliseconds(), int64(len(ruleNumber)), refunds, int64(len(batch))-refunds)
	c.add(rules...)
	c.add(ofKeys...)
	if refunds > 0 {
		c.addQuestions(batch, true)
	}
	c.addQuestions(batch, false)
	c.args[len(c.args)-1] = ']'
	return c
}

// addQuestions adds the refunds, or all others.
func (c *call) addQuestions(batch []*question, refunds bool) {
	numbers := c.numbers
	for _, q := range batch {
		n := len(q.keys)
		if refunds == (q.mode == refund) {
			if refunds {
				c.add(q.cost, q.at, int64(n))
			} else {
				c.add(int64(q.mode), q.cost, int64(n))
			}
			c.add(numbers[:n]...)
		}
		numbers = numbers[n:]
	}
}

func (c *call) add(values ...int64) {
	for _, v := range values {
		c.args = append(strconv.AppendInt(c.args, v, 10), ',')
	}
}

// decode gives the questions of the batch their answers.
func (c *call) decode(values []int64, batch []*question, answers []answer) error {
	want := 1 + len(c.keys)
	for _, q := range batch {
		if q.mode != refund {
			want += 1 + len(q.keys)
		}
	}
	if len(values) != want {
		return fmt.Errorf("the script answered %d values, not %d", len(values), want)
	}
	now, previous, rest := values[0], values[1:1+len(c.keys)], values[1+len(c.keys):]
	numbers, fills := c.numbers, make([]fill, len(c.numbers))
	for i, q := range batch {
		n := len(q.keys)
		answers[i].now = now
		if q.mode != refund {
			answers[i].spent, answers[i].fills = rest[0] == 1, fills[:n:n]
			for j, number := range numbers[:n] {
				fills[j] = fill{room: rest[1+j], previous: previous[number-1]}
			}
			rest, fills = rest[1+n:], fills[n:]
		}
		numbers = numbers[n:]
	}
	return nil
}
