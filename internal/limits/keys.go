package limits

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Keys look like
//
//	fb:{<subject>}:limit:<name>:<rule>
//
// <subject> is a hash of whom the limit counts for, and the cluster's hash tag: a client's
// limits, its limits per operation among them, share a slot. <rule> is a hash of the limit's
// owner and parameters, and of the operation where it counts per client and operation.
// Whatever bytes and however many of them a subject has, its keys are of one length, and
// nothing of it can be read in them.

// hashBytes of SHA-256 are kept: nobody finds two subjects that share them.
const hashBytes = 16

// subjectPrefix is the length of a key up to its subject's end.
const subjectPrefix = len("fb:{") + 2*hashBytes

var errNoSubject = errors.New("the request doesn't say whom it counts for")

// tag is the hash of whom r counts for.
func (s Subject) tag(per Per) (string, error) {
	var kind, who string
	switch per {
	case PerClient, PerClientOperation:
		kind, who = "client:", s.Client
	case PerIP:
		kind, who = "ip:", s.Address
	case PerOperation:
		kind, who = "operation:", s.Operation
	case PerTier:
		kind, who = "tier:", s.Tier
	case PerCountry:
		kind, who = "country:", s.Country
	case PerGlobal:
		kind, who = "global:", "all"
	}
	if who == "" || per == PerClientOperation && s.Operation == "" {
		return "", fmt.Errorf("per %s: %w", per, errNoSubject)
	}
	sum := sha256.Sum256([]byte(kind + who)) // kinds have no colon but their last: no two pairs read the same
	return hex.EncodeToString(sum[:hashBytes]), nil
}

// key is r's key for a subject with the given tag.
func (r *Rule) key(tag string, s Subject) string {
	suffix := r.suffix
	if suffix == "" {
		// The digest is of one length, so no two pairs read the same.
		suffix = keySuffix(r.limit.Name, sha256.Sum256(append(r.digest[:], s.Operation...)))
	}
	return "fb:{" + tag + suffix
}

// question checks r and finds its keys.
func (r Request) question(m mode) (*question, error) {
	if r.Cost < 1 || r.Cost > MaxAmount || r.Bytes < 0 || r.Bytes > MaxAmount {
		return nil, fmt.Errorf("%w, not %d and %d", ErrCost, r.Cost, r.Bytes)
	}
	if len(r.Rules) > MaxRules {
		return nil, fmt.Errorf("%w, not %d", ErrRules, len(r.Rules))
	}
	q := &question{mode: m, cost: r.Cost, bytes: r.Bytes, member: r.Job, rules: r.Rules, keys: make([]string, len(r.Rules))}
	var per Per
	var tag string
	for i, rule := range r.Rules {
		if rule.limit.Per != per { // rules of one subject mostly stand together
			per = rule.limit.Per
			var err error
			if tag, err = r.Subject.tag(per); err != nil {
				return nil, fmt.Errorf("%s: %w", rule.limit.Name, err)
			}
		}
		q.keys[i] = rule.key(tag, r.Subject)
		if slices.Contains(q.keys[:i], q.keys[i]) {
			return nil, fmt.Errorf("%w: %s comes twice", ErrRules, rule.limit.Name)
		}
		if rule.never(r.Takes(rule)) && !rule.limit.Shadow {
			q.mode = peek // it can never fit, so it spends nothing
		}
	}
	return q, nil
}

// bySubject splits q into one question for each subject, in the order of their first rules.
func (q *question) bySubject() []*question {
	var parts []*question
	number := map[string]int{}
	for i, key := range q.keys {
		subject := key[:subjectPrefix]
		n, ok := number[subject]
		if !ok {
			n = len(parts)
			number[subject] = n
			parts = append(parts, &question{mode: q.mode, cost: q.cost, bytes: q.bytes, member: q.member, holds: q.holds, by: q.by})
		}
		p := parts[n]
		p.rules, p.keys, p.place = append(p.rules, q.rules[i]), append(p.keys, key), append(p.place, i)
	}
	return parts
}
