package leaky_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// modelSubscription is a caller's subscription to a job; st is its standing once it was canceled by
// itself.
type modelSubscription struct {
	job      jobs.Job
	st       jobs.Standing
	canceled bool
	end      float64
	keep     time.Duration
	bytes    int64 // if it becomes a job of its own
}

// entry is a job in a client's list.
type entry struct {
	id string
	at float64
}

// shared has the model's shared jobs, and what clients see of all jobs.
type shared struct {
	subs      map[string]*modelSubscription
	joints    map[string]string          // job by Join
	joined    map[string]string          // Join by job, also after it can't be joined any more
	live      map[string]map[string]bool // by job: its subscriptions
	mine      map[string][]entry         // by client
	gone      map[string]string          // client by purged job
	spent     map[string]float64         // by purged job: until when its id isn't used again
	callbacks zset
	first     map[string]string            // by job: its first subscription
	once      map[string]map[string]string // by job: subscriptions of clients that have one at most
	several   map[string]map[string]int    // by job and client: how many the others had
	most      int                          // subscriptions to a job
	each      int                          // of one client that may have several
}

func newShared() shared {
	return shared{subs: map[string]*modelSubscription{}, joints: map[string]string{},
		joined: map[string]string{}, live: map[string]map[string]bool{},
		mine: map[string][]entry{}, gone: map[string]string{}, spent: map[string]float64{},
		callbacks: zset{}, first: map[string]string{}, once: map[string]map[string]string{},
		several: map[string]map[string]int{}}
}

func (m *model) onRecord(id string) bool { return m.jobs[id] != nil || m.subs[id] != nil }

// other returns the outcome of an offer whose key has made another job, and that job.
func (m *model) other(o leaky.Offer) (outcome leaky.Outcome, id string) {
	for _, id := range o.Others {
		switch {
		case m.onRecord(id):
			m.room(o)
			return leaky.Exists, id
		case m.spent[id] > m.now:
			m.room(o)
			return leaky.Spent, ""
		}
	}
	return "", ""
}

// join returns the outcome of an offer that needs no place in the line, and the subscription that
// its client has already; "": it needs a place.
func (m *model) join(o leaky.Offer) (outcome leaky.Outcome, has string) {
	job, underWay := m.joints[o.Join]
	fits := m.room(o)
	switch {
	case m.onRecord(o.Job.ID):
		return leaky.Exists, ""
	case m.spent[o.Job.ID] > m.now &&
		(o.Job.Fingerprint != "" || o.Join != "" && o.StartWithin == 0):
		return leaky.Spent, ""
	case !fits:
		return leaky.Limited, ""
	case o.Join == "" || o.StartWithin > 0:
		return "", ""
	case !underWay:
		return "", ""
	case o.Refresh:
		return leaky.Joined, ""
	}
	once := onceOf(o.Job)
	if id := m.once[job][once]; once != "" && m.live[job][id] {
		m.earlier(job, o)
		return leaky.Again, id
	}
	if len(m.live[job]) >= m.most || once == "" && m.several[job][o.Job.Client] >= m.each {
		return "", ""
	}
	m.advance()
	m.subscribe(o, job)
	m.earlier(job, o)
	return leaky.Joined, ""
}

// onceOf returns the key of a client's only subscription to a job; "": it may have several.
func onceOf(j jobs.Job) string {
	if j.Fingerprint != "" || j.Anonymous() {
		return ""
	}
	return j.Client + " " + j.Callback
}

// earlier moves a waiting job to where the offer's own would stand, if that is earlier.
func (m *model) earlier(job string, o leaky.Offer) {
	tag := m.line.inTurn(max(m.v, m.flows[flowOf(o.Job)]) + 1/o.Weight)
	if there, waits := m.line[job]; waits && tag < there {
		m.line[job], m.flows[flowOf(o.Job)] = tag, tag
	}
}

func (m *model) subscribe(o leaky.Offer, job string) {
	s := &modelSubscription{job: o.Job, end: m.now + usec(o.MaxAge), keep: o.Keep,
		bytes: m.counted(o)}
	s.job.Payload, s.job.CreatedAt, s.job.Weight, s.job.Of = nil, when(m.newest), o.Weight, job
	m.subs[o.Job.ID] = s
	m.live[job][o.Job.ID] = true
	if m.first[job] == "" {
		m.first[job], m.once[job], m.several[job] = o.Job.ID, map[string]string{}, map[string]int{}
	}
	if once := onceOf(o.Job); once != "" {
		m.once[job][once] = o.Job.ID
	} else {
		m.several[job][o.Job.Client]++
	}
	m.enlist(o.Job)
}

// part is the model's Part.
func (m *model) part(t leaky.Ticket, owner string, private bool) leaky.PartOutcome {
	j := m.jobs[t.ID]
	if j == nil || j.st.State != jobs.Running || j.run != t.Run || j.owner != owner {
		return leaky.PartForfeited
	}
	if !j.job.Shared {
		return leaky.Parted
	}
	m.unjoin(t.ID)
	var subs []*modelSubscription
	for id := range m.live[t.ID] {
		subs = append(subs, m.subs[id])
	}
	slices.SortFunc(subs, func(a, b *modelSubscription) int {
		return cmp.Or(a.job.CreatedAt.Compare(b.job.CreatedAt), cmp.Compare(a.job.ID, b.job.ID))
	})
	if len(subs) > 0 && !m.live[t.ID][m.first[t.ID]] {
		m.first[t.ID] = subs[0].job.ID
	}
	for _, s := range subs {
		first := m.subs[m.first[t.ID]].job
		if s.job.ID == first.ID || private && !first.Anonymous() && s.job.Client == first.Client {
			continue
		}
		delete(m.live[t.ID], s.job.ID)
		delete(m.subs, s.job.ID)
		s.job.Of = ""
		tag := m.line.inTurn(max(m.v, m.flows[flowOf(s.job)]) + 1/s.job.Weight)
		m.jobs[s.job.ID] = &modelJob{job: s.job, accepted: float64(s.job.CreatedAt.UnixMicro()),
			start: s.end, end: s.end, keep: s.keep, tag: tag, bytes: s.bytes,
			st: jobs.Standing{State: jobs.Waiting, Version: j.st.Version + 1}}
		m.line[s.job.ID], m.flows[flowOf(s.job)] = tag, tag
		m.hold(s.job.Client, 1)
		m.store(s.job.Client, s.bytes)
		m.books["accepted"]++
	}
	return leaky.Parted
}

// enlist adds a job or subscription to its client's list.
func (m *model) enlist(job jobs.Job) {
	if job.Anonymous() {
		return // no caller can ask for the list
	}
	m.mine[job.Client] = append(m.mine[job.Client], entry{id: job.ID, at: m.newest})
}

// placed applies the other effects of an accepted offer. inner is the id of its job if that is
// shared.
func (m *model) placed(o leaky.Offer, inner string) leaky.Offer {
	if o.Join == "" || o.StartWithin > 0 {
		m.enlist(o.Job)
		return o
	}
	m.joints[o.Join], m.joined[inner], m.live[inner] = inner, o.Join, map[string]bool{}
	m.subscribe(o, inner)
	o.Job.Shared = true
	o.Job.ID, o.Job.Callback, o.Job.Fingerprint, o.Job.Holds = inner, "", "", jobs.Holds{}
	return o
}

// ended applies the end of a job or subscription for its client.
func (m *model) ended(job jobs.Job) {
	delete(m.held[job.Client], job.ID)
	if job.Callback != "" {
		m.callbacks[job.ID] = us(m.now)
	}
	list := m.mine[job.Client]
	for range 2 {
		if len(list) > 0 && !m.onRecord(list[0].id) {
			list = list[1:]
		}
	}
	m.mine[job.Client] = list
}

func (m *model) unjoin(job string) {
	if join := m.joined[job]; m.joints[join] == job {
		delete(m.joints, join)
	}
}

// finished ends the subscriptions to a job that has ended.
func (m *model) finished(job jobs.Job) {
	if !job.Shared {
		m.ended(job)
	}
	for id := range m.live[job.ID] {
		m.ended(m.subs[id].job)
	}
}

// leave is the model's Cancel of a subscription.
func (m *model) leave(s *modelSubscription) leaky.CancelOutcome {
	job := m.jobs[s.job.Of]
	switch {
	case s.canceled:
		return leaky.Canceled
	case job.st.State.Final() || len(m.live[s.job.Of]) == 1:
		return m.cancel(s.job.Of)
	}
	delete(m.live[s.job.Of], s.job.ID)
	s.canceled = true
	s.st = jobs.Standing{State: jobs.Canceled, FinishedAt: when(m.now),
		ExpiresAt: when(m.now + usec(s.keep)), Version: job.st.Version + 1}
	m.ended(s.job)
	return leaky.Canceled
}

// lookAtSubscription is the model's Look at a subscription.
func (m *model) lookAtSubscription(s *modelSubscription) leaky.Look {
	if s.canceled {
		return leaky.Look{Job: s.job, Standing: s.st, CallTime: span(m.call), Now: when(m.now)}
	}
	look := m.look(s.job.Of)
	look.Job = s.job
	return look
}

// purge is the model's Purge of a job on record, or of one that was purged before.
func (m *model) purge(id string) leaky.PurgeOutcome {
	switch s, j := m.subs[id], m.jobs[id]; {
	case s == nil && j == nil && m.gone[id] == "":
		return "unknown"
	case s == nil && j == nil:
	case !m.look(id).Standing.State.Final():
		return leaky.NotEnded
	case j != nil:
		m.remove(id)
	default:
		m.spent[id] = float64(m.look(id).Standing.ExpiresAt.UnixMicro())
		last := m.live[s.job.Of][id] && len(m.live[s.job.Of]) == 1
		delete(m.live[s.job.Of], id)
		delete(m.subs, id)
		m.gone[id] = s.job.Client
		if last {
			m.remove(s.job.Of)
		}
	}
	return leaky.Purged
}

func (m *model) remove(id string) {
	m.dropped(m.jobs[id])
	for sub := range m.live[id] {
		m.gone[sub], m.spent[sub] = m.subs[sub].job.Client,
			float64(m.jobs[id].st.ExpiresAt.UnixMicro())
		delete(m.subs, sub)
	}
	if j := m.jobs[id].job; !j.Shared {
		m.gone[id], m.spent[id] = j.Client, float64(m.jobs[id].st.ExpiresAt.UnixMicro())
	}
	delete(m.jobs, id)
	delete(m.failed, id)
	delete(m.live, id)
}

// listOf is the model's Mine, of all pages at once.
func (m *model) listOf(f leaky.MineFilter) (all []leaky.Look) {
	for _, e := range slices.Backward(m.mine[f.Client]) {
		if !m.onRecord(e.id) {
			continue
		}
		look := m.look(e.id)
		if look.Job.CreatedAt.Equal(when(e.at)) &&
			cmp.Or(f.Status, look.Standing.State.Public()) == look.Standing.State.Public() &&
			cmp.Or(f.Operation, look.Job.Operation) == look.Job.Operation {
			all = append(all, look)
		}
	}
	return all
}
