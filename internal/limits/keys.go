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
// <subject> is a hash of the subject, and the cluster's hash tag. So a client's limits, including
// its limits per operation, share a slot. <rule> is a hash of the limit's owner and parameters, and
// of the operation if the limit counts per client and operation. All keys of a limit have the same
// length, and they don't reveal the subject.

// hashBytes is how many bytes of a SHA-256 are kept: enough that nobody can find two subjects with
// the same ones.
const hashBytes = 16

// subjectPrefix is the length of a key up to its subject's end.
const subjectPrefix = len("fb:{") + 2*hashBytes

var errNoSubject = errors.New("the request has no such subject")

// tag is the hash of the part of s that per counts for.
func (s Subject) tag(per Per) (string, error) {
	var kind, part string
	switch per {
	case PerClient, PerClientOperation:
		kind, part = "client:", s.Client
	case PerIP:
		kind, part = "ip:", s.Address
	case PerOperation:
		kind, part = "operation:", s.Operation
	case PerTier:
		kind, part = "tier:", s.Tier
	case PerCountry:
		kind, part = "country:", s.Country
	case PerGlobal:
		kind, part = "global:", "all"
	}
	if part == "" || per == PerClientOperation && s.Operation == "" {
		return "", fmt.Errorf("per %s: %w", per, errNoSubject)
	}
	// A kind's only colon is its last byte, so no two pairs of kind and part have the same text.
	sum := sha256.Sum256([]byte(kind + part))
	return hex.EncodeToString(sum[:hashBytes]), nil
}

// key returns r's key for a subject with the given tag.
func (r *Rule) key(tag string, s Subject) string {
	suffix := r.suffix
	if suffix == "" {
		// All digests have one length, so no two pairs have the same text.
		suffix = keySuffix(r.limit.Name, sha256.Sum256(append(r.digest[:], s.Operation...)))
	}
	return "fb:{" + tag + suffix
}

// question checks r and computes its keys.
func (r Request) question(m mode) (*question, error) {
	if r.Cost < 1 || r.Cost > MaxAmount || r.Bytes < 0 || r.Bytes > MaxAmount {
		return nil, fmt.Errorf("%w, not %d and %d", ErrCost, r.Cost, r.Bytes)
	}
	if len(r.Rules) > MaxRules {
		return nil, fmt.Errorf("%w, not %d", ErrRules, len(r.Rules))
	}
	q := &question{mode: m, cost: r.Cost, bytes: r.Bytes, member: r.Job,
		rules: r.Rules, keys: make([]string, len(r.Rules))}
	var per Per
	var tag string
	for i, rule := range r.Rules {
		if rule.limit.Per != per { // rules of one subject mostly follow each other
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
			q.mode = peek // the request can never fit, so it spends nothing
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
			parts = append(parts, &question{mode: q.mode, cost: q.cost, bytes: q.bytes,
				member: q.member, holds: q.holds, by: q.by})
		}
		p := parts[n]
		p.rules, p.keys = append(p.rules, q.rules[i]), append(p.keys, key)
		p.index = append(p.index, i)
	}
	return parts
}
