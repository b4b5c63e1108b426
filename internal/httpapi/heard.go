package httpapi

import (
	"slices"
	"sync"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

const (
	// recallDecision is how old word of the limits may be on a decision that no limit made: a fresh answer, a replayed job.
	recallDecision = time.Second
	// recallStatus is how old it may be on what clients poll.
	recallStatus = 200 * time.Millisecond
	// maxHeard bounds the clients of whom something is remembered, under 1 KiB each. At the bound all are forgotten, and heard of anew.
	maxHeard = 10_000
	// maxPlans bounds what is remembered of one client: its limits for some operations, and for calls that name none.
	maxPlans = 4
)

// heard is a short memory of where clients' limits stand, so that answers which spend nothing needn't ask. What a client's own requests
// spent through this process is always in it; others' requests, and other processes', may change a limit behind its back for as
// long as the word may be old. The zero value knows nothing. Safe for concurrent use.
type heard struct {
	mu      sync.Mutex
	clients map[string]*hearsay // guarded by mu; by client id
	emptied time.Time           // guarded by mu: when clients was, last
}

// hearsay is what was heard of one client.
type hearsay struct {
	decided time.Time // the newest decision, by the store's clock: what was read before it is old
	changed time.Time // when something else changed, by this process's clock: what was asked before it is old
	words   []word
}

// word is where the limits of one plan stood.
type word struct {
	plan    *plan
	subject limits.Subject
	verdict limits.Verdict
	when    time.Time // when it was heard, by this process's clock
}

// of returns the client's hearsay. h.mu must be held.
func (h *heard) of(client string) *hearsay {
	if h.clients == nil || len(h.clients) >= maxHeard && h.clients[client] == nil {
		h.clients, h.emptied = make(map[string]*hearsay), time.Now()
	}
	if h.clients[client] == nil {
		h.clients[client] = &hearsay{}
	}
	return h.clients[client]
}

// newWord leaves out what a verdict holds besides: how to refund it, and why it refused. v's Standings must not change after.
func newWord(p *plan, s limits.Subject, v limits.Verdict) word {
	return word{plan: p, subject: s, verdict: limits.Verdict{Allowed: true, Standings: v.Standings, At: v.At}, when: time.Now()}
}

// decision takes in what the limits said to a request that may have spent some. All that was heard of the client before is old then.
func (h *heard) decision(p *plan, r limits.Request, v limits.Verdict) {
	if r.Subject.Client == "" || len(p.rules) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.of(r.Subject.Client)
	if v.At.Before(c.decided) {
		return
	}
	// Of two in one batch nobody knows here which came last. And where a request was refused, its standings are about its own cost and bytes.
	tied := v.At.Equal(c.decided)
	c.decided, c.words = v.At, c.words[:0]
	if !tied && (v.Allowed || r.Cost == 1 && !p.bytes) {
		c.words = append(c.words, newWord(p, r.Subject, v))
	}
}

// peek takes in where the limits stood when somebody asked for that, from the given moment on.
func (h *heard) peek(p *plan, s limits.Subject, v limits.Verdict, asked time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.of(s.Client)
	if !v.At.After(c.decided) || asked.Before(c.changed) || asked.Before(h.emptied) {
		return
	}
	c.words = slices.DeleteFunc(c.words, func(w word) bool { return w.plan == p })
	if len(c.words) == maxPlans {
		c.words = slices.Delete(c.words, 0, 1)
	}
	c.words = append(c.words, newWord(p, s, v))
}

// forget drops what was heard of a client: something has changed that nobody told.
func (h *heard) forget(client string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.clients[client]; c != nil {
		c.changed, c.words = time.Now(), c.words[:0]
	}
}

// recall is where a plan's limits stood for somebody, not longer ago than within; nil where nobody has said.
func (h *heard) recall(p *plan, s limits.Subject, within time.Duration) *limits.Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.clients[s.Client]
	if c == nil {
		return nil
	}
	for _, w := range slices.Backward(c.words) {
		if time.Since(w.when) > within {
			continue
		}
		v := w.verdict
		if w.plan == p && w.subject == s {
			return &v
		}
		// Limits of all of the client's requests stand first among those of an operation.
		n := len(p.rules)
		w.subject.Operation = s.Operation
		if p.own == n && w.plan.own == n && w.subject == s && slices.Equal(w.plan.rules[:n], p.rules) {
			v.Standings = v.Standings[:n:n]
			return &v
		}
	}
	return nil
}
