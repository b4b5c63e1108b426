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
func (s *script) decide(ctx context.Context, batch []question) ([]answer, error) {
	answers := make([]answer, len(batch))
	for from := 0; from < len(batch); {
		to, keys := from+1, len(batch[from].keys)
		for ; to < len(batch) && keys+len(batch[to].keys) <= maxKeys; to++ {
			keys += len(batch[to].keys)
		}
		if err := s.call(ctx, batch[from:to], answers[from:to]); err != nil {
			for i := from; i < to; i++ {
				answers[i].err = fmt.Errorf("limits: %w", err)
			}
		}
		from = to
	}
	return answers, nil
}

// call runs the script once. A script that Redis doesn't know (after a restart) is sent whole;
// nothing else is repeated, for a lost reply may stand for a charge.
func (s *script) call(ctx context.Context, batch []question, answers []answer) error {
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
	keys    []string
	numbers map[string]int64 // of the keys, from 1
	args    []byte
}

func (s *script) encode(batch []question) *call {
	c := &call{numbers: make(map[string]int64, 2*len(batch))}
	var rules, ofKeys []int64 // as ARGV[1] has them
	ruleNumbers := make(map[*Rule]int64, 8)
	refunds := int64(0)
	for _, q := range batch {
		if q.mode == refund {
			refunds++
		}
		for i, key := range q.keys {
			if _, ok := c.numbers[key]; ok {
				continue
			}
			number, ok := ruleNumbers[q.rules[i]]
			if !ok {
				number = int64(len(ruleNumbers) + 1)
				ruleNumbers[q.rules[i]] = number
				p := q.rules[i].arithmetic.parameters()
				rules = append(rules, p[:]...)
			}
			c.keys = append(c.keys, key)
			c.numbers[key] = int64(len(c.keys))
			ofKeys = append(ofKeys, number)
		}
	}

	var now int64
	if s.clock != nil {
		now = s.clock()
	}
	c.args = make([]byte, 0, 64+12*len(rules)+4*len(ofKeys)+24*len(batch))
	c.args = append(c.args, '[')
	c.add(now, s.slack.Milliseconds(), int64(len(ruleNumbers)), refunds, int64(len(batch))-refunds)
	c.add(rules...)
	c.add(ofKeys...)
	for _, q := range batch {
		if q.mode == refund {
			c.add(q.cost, q.at, int64(len(q.keys)))
			c.addKeys(q.keys)
		}
	}
	for _, q := range batch {
		if q.mode != refund {
			c.add(int64(q.mode), q.cost, int64(len(q.keys)))
			c.addKeys(q.keys)
		}
	}
	c.args[len(c.args)-1] = ']'
	return c
}

func (c *call) add(values ...int64) {
	for _, v := range values {
		c.args = append(strconv.AppendInt(c.args, v, 10), ',')
	}
}

func (c *call) addKeys(keys []string) {
	for _, key := range keys {
		c.add(c.numbers[key])
	}
}

// decode gives the questions of the batch their answers.
func (c *call) decode(values []int64, batch []question, answers []answer) error {
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
	fills := make([]fill, len(rest))
	for i, q := range batch {
		answers[i].now = now
		if q.mode == refund {
			continue
		}
		n := len(q.keys)
		a := answer{now: now, spent: rest[0] == 1, fills: fills[:n:n]}
		for j, key := range q.keys {
			a.fills[j] = fill{room: rest[1+j], previous: previous[c.numbers[key]-1]}
		}
		rest, fills = rest[1+n:], fills[n:]
		answers[i] = a
	}
	return nil
}
