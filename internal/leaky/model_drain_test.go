package leaky_test

import (
	"cmp"
	"math"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/units"
)

const noWake = 3600e6 // µs

// release is the model's Release.
func (m *model) release() leaky.Release {
	v := m.view()
	r := leaky.Release{Now: int64(m.now)}
	m.leases(&r)
	for _, id := range m.delayed.within(upTo(m.now), leaky.MaxGrant) {
		delete(m.delayed, id)
		m.line[id] = m.jobs[id].tag
		m.jobs[id].move(jobs.Waiting)
	}
	for _, id := range m.deadlines.within(upTo(m.now), leaky.MaxGrant) {
		delete(m.deadlines, id)
		if _, waits := m.line[id]; waits {
			m.expire(id, &r)
		}
	}
	if _, flies := m.inflight[v.probe]; v.probing() && !flies {
		v.probe, m.probe = "due", "due"
	}
	r.Lapsed = m.lapse()
	if !v.feedback && m.factor != 0 {
		m.gate, m.factor, m.cut, m.healed, m.cause, m.probe, m.streak = 0, 0, 0, 0, "", "", 0
	}
	wait := m.grant(v, &r)

	passed := upTo(m.v)
	if r.Reason == leaky.OnIdle {
		passed = upTo(math.Inf(1))
	}
	for _, flow := range m.flows.within(passed, 200) {
		delete(m.flows, flow)
	}
	m.trim()
	switch {
	case r.Reason == leaky.OnIdle && len(m.delayed) > 0:
		wait = max(m.delayed[m.delayed.sorted()[0]]-m.now, 0)
	case r.Reason == leaky.OnIdle, r.Reason == leaky.OnPaused, r.Reason == leaky.OnConcurrency:
		wait = noWake
	}
	wait = min(wait, v.nextEnd-m.now)
	r.Wait = span(us(max(wait, 0)))
	return r
}

// leases shortens leases that are too long and returns the jobs of expired ones.
func (m *model) leases(r *leaky.Release) {
	furthest := m.now + usec(leaky.Horizon) + max(usec(leaky.Lease), usec(leaky.Grace))
	for _, id := range m.inflight.within(func(end float64) bool {
		return end > furthest
	}, leaky.MaxGrant) {
		m.inflight[id] = furthest
	}
	for _, id := range m.inflight.within(upTo(m.now), leaky.MaxGrant) {
		delete(m.inflight, id)
		j := m.jobs[id]
		switch {
		case j.st.Canceling:
			m.finish(j, jobs.Canceled, jobs.Failure{})
			r.Ended = append(r.Ended, leaky.Ended{ID: id, State: jobs.Canceled})
		case j.st.State == jobs.Running && j.st.Attempts >= m.s.Attempts:
			m.finish(j, jobs.Failed, jobs.Failure{Code: jobs.CodeWorkerLost,
				Detail: "The workers that ran the job were lost."})
			r.Ended = append(r.Ended,
				leaky.Ended{ID: id, State: jobs.Failed, Code: jobs.CodeWorkerLost})
		default:
			m.requeue(j)
			r.Returned++
		}
	}
}

func (m *model) expire(id string, r *leaky.Release) {
	j := m.jobs[id]
	delete(m.line, id)
	delete(m.deadlines, id)
	m.hold(j.job.Client, -1)
	m.finish(j, jobs.Expired, jobs.Failure{Code: jobs.CodeDeadline,
		Detail: "The job could not start before its deadline."})
	r.Ended = append(r.Ended, leaky.Ended{ID: id, State: jobs.Expired, Code: jobs.CodeDeadline})
}

// grant grants the slots of the horizon and returns when to ask again.
func (m *model) grant(v *view, r *leaky.Release) (wait float64) {
	free := int(v.concurrency) - len(m.inflight)
	dropped := 0
	for len(r.Tickets) < leaky.MaxGrant {
		slot := v.nextSlot(m.now)
		due := max(slot, m.now)
		start := m.now
		if free > 0 && !v.paused && !v.resting() && due <= m.now+usec(leaky.Horizon) {
			start = due
		}
		for len(m.line) > 0 && dropped < leaky.MaxGrant &&
			m.jobs[m.line.sorted()[0]].tooLate(start) {
			m.expire(m.line.sorted()[0], r)
			dropped++
		}
		switch {
		case dropped == leaky.MaxGrant:
		case len(m.line) == 0:
			r.Reason = leaky.OnIdle
		case v.paused:
			r.Reason = leaky.OnPaused
		case v.resting():
			if r.Reason, wait = leaky.OnCooldown, noWake; m.now < v.gate {
				wait = v.gate - m.now
			}
		case free <= 0:
			r.Reason = leaky.OnConcurrency
		case due > m.now+usec(leaky.Horizon):
			r.Reason, wait = leaky.OnRate, due-usec(leaky.Horizon)/2-m.now
		default:
			r.Tickets = append(r.Tickets, m.ticket(m.line.sorted()[0], slot, due))
			v.last = slot
			free--
			if v.probe != "" {
				v.probe = r.Tickets[len(r.Tickets)-1].ID
				m.probe = v.probe
			}
			continue
		}
		break
	}
	if len(r.Tickets) > 0 || v.setBack > 0 {
		m.last, m.at, m.gate = v.last, m.now, v.gate
	}
	return wait
}

func (m *model) ticket(id string, slot, due float64) leaky.Ticket {
	j := m.jobs[id]
	j.tag = m.line[id]
	delete(m.line, id)
	delete(m.deadlines, id)
	m.hold(j.job.Client, -1)
	j.run++
	j.move(jobs.Released)
	j.due, j.slot = us(due), slot
	m.inflight[id] = us(due + usec(leaky.Grace))
	m.v = max(m.v, j.tag)
	return leaky.Ticket{ID: id, Run: j.run, Due: int64(j.due)}
}

// start is the model's Start; it leaves Job to the caller.
func (m *model) start(t leaky.Ticket, owner string) leaky.Started {
	j, v := m.jobs[t.ID], m.view()
	if j == nil {
		return leaky.Started{Outcome: leaky.Gone, Now: int64(m.now)}
	}
	mine := j.st.State == jobs.Running && j.owner == owner &&
		float64(m.inflight[t.ID])-float64(m.now) > float64(usec(leaky.Lease)/2)
	if j.run != t.Run || !mine && j.st.State != jobs.Released {
		return leaky.Started{Outcome: leaky.Gone, Now: int64(m.now)}
	}
	if !mine {
		if !m.slotFor(j, v) {
			delete(m.inflight, t.ID)
			m.requeue(j)
			return leaky.Started{Outcome: leaky.Back, Now: int64(m.now)}
		}
		j.move(jobs.Running)
		j.st.Attempts++
		j.owner, j.st.StartedAt = owner, when(j.due)
		m.inflight[t.ID] = us(max(m.now, j.due) + usec(leaky.Lease))
		m.books["started"]++
	}
	return leaky.Started{Outcome: leaky.Go, Now: int64(m.now), Due: int64(j.due),
		Attempt: j.st.Attempts, Waited: span(max(j.due-j.accepted, 0)), Ends: int64(j.end)}
}

// slotFor finds the slot in which a released job may start; false: it has to go back.
func (m *model) slotFor(j *modelJob, v *view) bool {
	if v.paused || m.now < v.gate || v.probe != "" && v.probe != j.job.ID || j.tooLate(m.now) {
		return false
	}
	horizon := m.now + usec(leaky.Horizon)
	tooFar := j.due > horizon
	if !tooFar && m.now-j.slot <= v.lag+usec(leaky.Late) {
		return true
	}
	slot := m.now
	if tooFar || v.last > j.slot {
		slot = v.nextSlot(m.now)
	}
	if max(slot, m.now) > horizon {
		return false
	}
	j.slot, j.due = slot, us(max(slot, m.now))
	m.last, m.at, m.gate = slot, m.now, v.gate
	return true
}

// renew is the model's Renew for one ticket.
func (m *model) renew(t leaky.Ticket, owner string) leaky.Renewal {
	j := m.jobs[t.ID]
	if j == nil || j.st.State != jobs.Running || j.run != t.Run || j.owner != owner {
		return leaky.Lost
	}
	m.inflight[t.ID] = m.now + usec(leaky.Lease)
	if j.st.Canceling {
		return leaky.Stop
	}
	return leaky.Held
}

// settle is the model's Settle.
func (m *model) settle(s leaky.Settlement) (leaky.SettleOutcome, leaky.Feedback) {
	j, v := m.jobs[s.ID], m.view()
	me := leaky.Ticket{ID: s.Owner, Run: s.Run}
	if j == nil {
		return leaky.Forfeited, v.treatment()
	}
	if j.settledBy == me {
		return leaky.Settled, v.treatment()
	}
	if j.st.State != jobs.Running || j.run != s.Run || j.owner != s.Owner {
		return leaky.Forfeited, v.treatment()
	}
	delete(m.inflight, s.ID)
	j.settledBy, j.st.Failure = me, s.Failure
	to := s.To
	if j.st.Canceling && !to.Final() {
		to = jobs.Canceled
	}
	delay := usec(s.Delay)
	if to == jobs.Waiting {
		j.st.Attempts--
		if s.Sign == leaky.Throttled && !v.feedback {
			to, delay = jobs.Delayed, cmp.Or(usec(s.Gate), 1e6)
		}
	}
	switch to {
	case jobs.Waiting:
		m.requeue(j)
	case jobs.Delayed:
		j.move(jobs.Delayed)
		next := min(m.now+delay, j.end)
		j.st.NextAt, m.delayed[s.ID] = when(next), next
		m.hold(j.job.Client, 1)
	default:
		if s.Result.Status != 0 {
			j.st.Result = s.Result
			j.st.Result.Size = int64(len(s.Body))
		}
		m.finish(j, to, s.Failure)
	}
	changes := m.learn(s, to, v)
	f := m.view().treatment()
	f.Changes = changes
	return leaky.Settled, f
}

// cancel is the model's Cancel.
func (m *model) cancel(id string) leaky.CancelOutcome {
	if s := m.subs[id]; s != nil {
		return m.leave(s)
	}
	j := m.jobs[id]
	switch j.st.State {
	case jobs.Canceled:
		return leaky.Canceled
	case jobs.Succeeded, jobs.Failed, jobs.Expired:
		return leaky.AlreadyFinal
	case jobs.Running:
		if !j.st.Canceling {
			j.move(jobs.Running)
			j.st.Canceling = true
		}
		m.unjoin(id)
		return leaky.Aborting
	case jobs.Released:
		delete(m.inflight, id)
	default:
		delete(m.line, id)
		delete(m.delayed, id)
		delete(m.deadlines, id)
		m.hold(j.job.Client, -1)
	}
	m.finish(j, jobs.Canceled, j.st.Failure)
	return leaky.Canceled
}

// look is the model's Look.
func (m *model) look(id string) leaky.Look {
	if s := m.subs[id]; s != nil {
		return m.lookAtSubscription(s)
	}
	j, v := m.jobs[id], m.view()
	l := leaky.Look{Job: j.job, Standing: j.st, CallTime: span(m.call), Now: when(m.now)}
	if j.st.State == jobs.Waiting {
		rank := 0
		for i, waits := range m.line.sorted() {
			if waits == id {
				rank = i
			}
		}
		l.Position, l.WaitingOn = int64(rank)+1, v.waitingOn(v.full())
		if !v.paused {
			l.Wait = span(v.waitFor(rank, v.full()))
		}
	}
	return l
}

// status is the model's Status.
func (m *model) status() leaky.Status {
	v := m.view()
	o, _ := m.inForce()
	s := leaky.Status{Now: when(m.now), Settings: m.s, Configured: m.s, Override: o, Notes: m.notesOn(o), By: m.by,
		Reason: m.reason, Version: m.version(),
		Factor: v.factor, Probing: v.probing(), EffectiveRate: 1e6 / v.interval,
		EffectiveConcurrency: int(v.concurrency), Waiting: int64(len(m.line)),
		Delayed:  int64(len(m.delayed)),
		InFlight: int64(len(m.inflight)), WaitingOn: leaky.OnIdle, CallTime: span(m.call)}
	s.Burst, s.Concurrency = int(v.burst), either(o.Concurrency, m.s.Concurrency)
	s.Capacity, s.Paused, s.Feedback = int(v.capacity), v.paused, units.Switch(v.feedback)
	if o.Rate != nil {
		s.Rate = *o.Rate
	}
	if m.tunedAt != 0 {
		s.At = time.UnixMicro(m.tunedAt)
	}
	if len(m.line) > 0 {
		s.OldestWait = span(max(m.now-m.jobs[m.line.sorted()[0]].accepted, 0))
		s.WaitingOn = v.waitingOn(v.full())
	} else if v.paused {
		s.WaitingOn = leaky.OnPaused
	}
	if v.factor < 1 {
		s.Cause = m.cause
	}
	if v.gate > m.now {
		s.GateUntil = when(v.gate)
	}
	b := m.books
	s.Books = leaky.Books{Accepted: b["accepted"], Succeeded: b["succeeded"], Failed: b["failed"],
		Canceled: b["canceled"],
		Expired:  b["expired"], Started: b["started"], Throttled: b["throttled"],
		Redriven: b["redriven"]}
	return s
}
