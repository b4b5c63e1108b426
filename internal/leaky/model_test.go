package leaky_test

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// The model is the oracle: the line and its drain in plain Go, without Redis. Times are µs.

// model is one backend's line. Its methods do and return what the Line's must do and return at the
// time now.
type model struct {
	s   leaky.Settings
	now float64

	newest float64 // when the newest job was accepted

	line, delayed, inflight, deadlines, flows, failed zset
	share                                             map[string]int64
	jobs                                              map[string]*modelJob
	books                                             map[string]int64
	shared
	stores
	*limited

	last, at, gate, v, call float64 // as stored
	streak                  int
	factor, cut, healed     float64 // factor 0: none stored
	cause                   leaky.Sign
	probe                   string
	overrides
	previews  map[string]previewed // by token
	previewed                      // the last one
}

type modelJob struct {
	job                  jobs.Job
	accepted, start, end float64
	keep                 time.Duration
	st                   jobs.Standing
	run                  int64
	owner                string
	settledBy            leaky.Ticket // ID is the owner
	due, slot, tag       float64
	bytes                int64 // 0: not counted
}

func newModel(s leaky.Settings) *model {
	return &model{s: s, line: zset{}, delayed: zset{}, inflight: zset{}, deadlines: zset{},
		flows: zset{}, failed: zset{},
		share: map[string]int64{}, jobs: map[string]*modelJob{}, books: map[string]int64{},
		shared: newShared(), stores: newStores(), overrides: newOverrides(),
		previews: map[string]previewed{}}
}

// zset is a sorted set of Redis: members by score, equal ones by name.
type zset map[string]float64

func (z zset) sorted() []string {
	return slices.SortedFunc(maps.Keys(z), func(a, b string) int {
		return cmp.Or(cmp.Compare(z[a], z[b]), cmp.Compare(a, b))
	})
}

// within is ZRANGEBYSCORE: the first limit members whose scores ok accepts.
func (z zset) within(ok func(score float64) bool, limit int) []string {
	var out []string
	for _, m := range z.sorted() {
		if ok(z[m]) && len(out) < limit {
			out = append(out, m)
		}
	}
	return out
}

func (z zset) count(ok func(score float64) bool) int { return len(z.within(ok, math.MaxInt)) }

func upTo(x float64) func(float64) bool  { return func(score float64) bool { return score <= x } }
func below(x float64) func(float64) bool { return func(score float64) bool { return score < x } }

// closeTags is the greatest distance between two tags for which the order of arrival counts.
const closeTags = 1.0 / 8192

// inTurn returns the tag of a new job: past all nearly equal tags in the line.
func (z zset) inTurn(tag float64) float64 {
	last := 0.0
	for _, other := range z {
		if other >= tag && other < tag+closeTags {
			last = max(last, other)
		}
	}
	return min(max(last*(1+0x1p-52), tag), tag+closeTags)
}

// us returns a time as the scripts write it.
func us(x float64) float64 { return math.RoundToEven(x) }

func when(x float64) time.Time { return time.UnixMicro(int64(us(x))) }

func span(x float64) time.Duration { return time.Duration(x) * time.Microsecond }

func usec(d time.Duration) float64 { return float64(d.Microseconds()) }

// view has what every script begins with: the settings in force and the pace, at one moment.
type view struct {
	*model
	last, gate, setBack          float64
	interval, lag, factor        float64
	burst, concurrency, capacity float64
	paused, feedback             bool
	probe                        string
	nextEnd                      float64 // of an override; +Inf: none ends
}

func (m *model) view() *view {
	v := &view{model: m, setBack: max(m.at-m.now, 0)}
	v.last, v.gate = m.last-v.setBack, m.gate-v.setBack
	o, nextEnd := m.inForce()
	v.nextEnd = nextEnd
	rate := m.s.Rate
	if o.Rate != nil {
		rate = *o.Rate
	}
	v.feedback, v.factor = bool(m.s.Feedback), 1
	if o.Feedback != nil {
		v.feedback = bool(*o.Feedback)
	}
	if !v.feedback {
		v.gate = 0
	} else if v.probe = m.probe; m.factor != 0 {
		v.factor = m.factor
	}
	v.interval = math.Ceil(rate.Interval()/v.factor*4) / 4
	v.burst = float64(either(o.Burst, m.s.Burst))
	v.lag = (v.burst - 1) * math.Ceil(rate.Interval()*4) / 4
	v.concurrency = float64(either(o.Concurrency, m.s.Concurrency))
	if rate == leaky.Unlimited {
		v.concurrency = max(1, math.Floor(v.concurrency*v.factor))
	}
	v.capacity = float64(either(o.Capacity, m.s.Capacity))
	v.paused = o.Paused != nil
	return v
}

func either(override *int, configured int) int {
	if override != nil {
		return *override
	}
	return configured
}

func (v *view) full() bool { return float64(len(v.inflight)) >= v.concurrency }

func (v *view) nextSlot(t float64) float64 {
	return max(v.last+v.interval, t-v.lag)
}

func (v *view) probing() bool { return v.probe != "" && v.probe != "due" }

func (v *view) resting() bool { return v.now < v.gate || v.probing() }

func (v *view) waitFor(rank int, full bool) float64 {
	open := max(v.now, v.gate)
	slot := v.nextSlot(open) + float64(rank)*v.interval
	ahead := float64(rank)
	if full {
		ahead++
	}
	return math.Ceil(max(open, slot, open+ahead*v.call/v.concurrency) - v.now)
}

func (v *view) waitingOn(full bool) string {
	switch {
	case v.paused:
		return leaky.OnPaused
	case v.resting():
		return leaky.OnCooldown
	case full, v.call/v.concurrency > v.interval:
		return leaky.OnConcurrency
	}
	return leaky.OnRate
}

func (m *model) hold(client string, by int64) {
	tag := leaky.ClientTag(client)
	if m.share[tag] += by; m.share[tag] <= 0 {
		delete(m.share, tag)
	}
}

func (j *modelJob) move(to jobs.State) {
	j.st.State = to
	j.st.Version++
	j.st.NextAt = time.Time{}
}

func (m *model) finish(j *modelJob, to jobs.State, f jobs.Failure) {
	j.move(to)
	keep := j.keep
	m.unjoin(j.job.ID)
	if to == jobs.Failed {
		keep = max(keep, m.s.KeepFailed)
		m.failed[j.job.ID] = us(m.now)
	}
	j.st.FinishedAt, j.st.ExpiresAt = when(m.now), when(m.now+usec(keep))
	j.st.Failure, j.st.Canceling = f, false
	m.kept(j, keep)
	m.finished(j.job)
	m.books[string(to)]++
}

func (m *model) requeue(j *modelJob) {
	j.move(jobs.Waiting)
	m.line[j.job.ID] = j.tag
	m.hold(j.job.Client, 1)
}

func (j *modelJob) tooLate(t float64) bool {
	return j.end <= t || j.start <= t && j.st.Attempts == 0
}

func flowOf(j jobs.Job) string { return leaky.ClientTag(j.Client) + ":" + string(j.Priority) }

// offer is one script call for all the offers; inner returns the id of a shared job.
func (m *model) offer(offers []leaky.Offer, inner func(leaky.Offer) string) []leaky.Place {
	v, places := m.view(), make([]leaky.Place, len(offers))
	full := v.full()
	on := v.waitingOn(full)
	defer m.beginOffers()()
	m.swept = map[string]bool{}
	for i, o := range offers {
		was := m.newest
		var p leaky.Place
		var tag float64
		if p.Outcome, p.ID = m.other(o); p.Outcome == "" {
			p.Outcome, p.ID = m.join(o)
			if alone := o.Join == "" || o.StartWithin > 0; p.Outcome == leaky.Exists && alone &&
				o.Job.Fingerprint == "" && m.room(o) {
				v.free(o) // the line checks its client's bytes before it finds the record
			}
		}
		if p.Outcome == "" {
			p, tag = v.place(o, full)
		}
		if p.Outcome == leaky.Accepted {
			m.advance()
			id := o.Job.ID
			if o.Join != "" && o.StartWithin == 0 {
				id = inner(o)
			}
			m.accept(m.placed(o, id), tag)
		}
		switch p.Outcome {
		case leaky.Accepted, leaky.Joined:
			m.limited.spend(o, true)
		case leaky.Again:
			m.limited.spend(o, false)
		}
		if m.newest > was {
			p.AcceptedAt = when(m.newest)
		}
		p.WaitingOn = on
		places[i] = p
	}
	return places
}

// beginOffers begins a script call that may accept jobs. The returned function ends it: if it has
// accepted none, it has changed nothing.
func (m *model) beginOffers() (end func()) {
	was := m.newest
	if was-m.now > 1e6 { // the clock was set back
		m.newest = 0
	}
	began := m.newest
	return func() {
		if m.newest == began {
			m.newest = was
		}
	}
}

// advance moves to the moment at which the next job is accepted: no two have the same.
func (m *model) advance() { m.newest = max(us(m.now), m.newest+1) }

func (m *model) accept(o leaky.Offer, tag float64) {
	j := &modelJob{job: o.Job, accepted: m.newest, end: m.now + usec(o.MaxAge), keep: o.Keep,
		tag: tag, bytes: m.counted(o)}
	m.store(o.Job.Client, j.bytes)
	j.job.Payload, j.job.CreatedAt, j.job.Weight, j.st.State = nil, when(m.newest), o.Weight,
		jobs.Waiting
	j.start = j.end
	if o.StartWithin > 0 {
		j.start = min(m.now+usec(o.StartWithin), j.end)
	}
	if j.start < j.end {
		m.deadlines[o.Job.ID] = j.start
	}
	m.jobs[o.Job.ID], m.line[o.Job.ID], m.flows[flowOf(o.Job)] = j, tag, tag
	m.hold(o.Job.Client, 1)
	m.books["accepted"]++
}

// place returns the answer to an offer that is not on record, and the tag that it would get.
func (v *view) place(o leaky.Offer, full bool) (leaky.Place, float64) {
	var p leaky.Place
	var retry float64
	refuse := func(outcome leaky.Outcome, after float64) {
		p.Outcome, retry = cmp.Or(p.Outcome, outcome), max(retry, after)
	}
	depth := len(v.line) + len(v.delayed)
	if float64(depth) >= v.capacity {
		refuse(leaky.LineFull, v.gone(depth-int(v.capacity)+1, full))
	}
	step, last := 1/o.Weight, v.flows[flowOf(o.Job)]
	limit := max(1, int64(math.Floor(v.capacity*v.s.ClientShare)))
	if held := v.share[leaky.ClientTag(o.Job.Client)]; v.s.ClientShare < 1 && held >= limit {
		n := float64(held - limit + 1)
		if last <= v.v+float64((n-1)*step)+closeTags {
			refuse(leaky.ClientShare, v.gone(depth, full))
		} else {
			refuse(leaky.ClientShare,
				v.waitFor(v.line.count(upTo(min(v.v+float64(n*step)+closeTags,
					last)))-1+len(v.delayed), full))
		}
	}
	tag := v.line.inTurn(max(v.v, last) + step)
	rank := v.line.count(upTo(tag))
	wait, longest := 0.0, usec(v.s.MaxWait)
	if !v.paused {
		wait = v.waitFor(rank, full)
	}
	if o.StartWithin > 0 {
		longest = min(longest, usec(o.StartWithin))
	}
	p.Wait = span(wait)
	if wait > longest {
		refuse(leaky.WaitTooLong, 0)
	}
	free := v.free(o)
	if free > 0 {
		refuse(leaky.StoredFull, free)
	}
	if p.Outcome == "" {
		p.Outcome, p.Position = leaky.Accepted, int64(rank)+1
		return p, tag
	}
	stays := v.waitFor(v.line.count(below(last)), full) - usec(leaky.Horizon)
	if here := max(v.waitFor(rank+len(v.delayed), full)-longest, retry); here <= stays {
		retry = min(here, max(v.gone(depth+1, full)-longest, retry))
	} else {
		retry = max(v.gone(depth+1, full)-longest, retry)
	}
	if p.RetryAfter = max(span(retry), time.Microsecond); v.paused {
		p.RetryAfter = max(30*time.Second, span(free))
	}
	return p, 0
}

// gone predicts when n of the waiting jobs have left the line.
func (v *view) gone(n int, full bool) float64 {
	wait := v.waitFor(n-1, full)
	if n > len(v.line) && len(v.delayed) > 0 {
		nth := min(n-len(v.line), len(v.delayed)) - 1
		wait += max(v.delayed[v.delayed.sorted()[nth]]-v.now, 0)
	}
	return wait
}
