package chaos

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/redistest"
)

// check checks every promise at the end.
func (w *world) check() {
	stood := w.stalls.end()
	calls := map[string][]call{}
	for _, name := range backends {
		calls[name] = w.backs[name].log()
	}
	w.lookAtAll()
	finals := w.ends()
	for _, name := range backends {
		w.counts(name, finals[name])
		w.paced(name, calls[name], stood)
		w.together(name, calls[name])
		w.callsFit(name, calls[name])
		w.results(name, calls[name])
		redistest.CheckBooks(w.t, w.rdb, name)
	}
	w.leftovers()
	w.permits()
	w.lookAtAll() // no status has changed since
	w.summary(calls, finals, stood)
}

// lookAtAll requests every job's status, which see compares.
func (w *world) lookAtAll() {
	c := w.crowd
	c.mu.Lock()
	ids := slices.Clone(c.ids)
	c.mu.Unlock()
	var all sync.WaitGroup
	for part := range slices.Chunk(ids, len(ids)/8+1) {
		all.Go(func() {
			for i, id := range part {
				c.mu.Lock()
				a := c.jobs[id]
				c.mu.Unlock()
				deadline := time.Now().Add(startTime)
				for ; !c.look(a, apis[i%len(apis)]); time.Sleep(100 * time.Millisecond) {
					if time.Now().After(deadline) {
						w.t.Errorf("no api returned the status of %s", id)
						break
					}
				}
			}
		})
	}
	all.Wait()
}

// ends counts the final states by backend and state. Each job must have one.
func (w *world) ends() map[string]map[string]int64 {
	w.crowd.mu.Lock()
	defer w.crowd.mu.Unlock()
	counts := map[string]map[string]int64{}
	for _, name := range backends {
		counts[name] = map[string]int64{}
	}
	for id, a := range w.crowd.jobs {
		backend, _, _ := strings.Cut(id, "-")
		counts[backend][a.final.Status]++
		if a.final.Status == "" {
			w.t.Errorf("%s has not ended", id)
		}
		if !a.canceled.IsZero() && a.final.Status != api.Canceled {
			w.t.Errorf("%s was canceled at %s and is %s", id, w.since(a.canceled), a.final.Status)
		}
	}
	return counts
}

// counts compares the line's books with the jobs: they differ if a job ended twice, or if one was
// accepted unnoticed.
func (w *world) counts(name string, finals map[string]int64) {
	var b api.Backend
	w.until("the admin API answers", startTime, func() (ok bool) {
		b, ok = w.backend(name)
		return ok
	})
	known := int64(0)
	for _, n := range finals {
		known += n
	}
	o := b.Outcomes
	for _, c := range []struct {
		field      string
		books, all int64
	}{
		{"accepted", o.Accepted, known},
		{api.Succeeded, o.Succeeded, finals[api.Succeeded]},
		{api.Failed, o.Failed, finals[api.Failed]},
		{api.Canceled, o.Canceled, finals[api.Canceled]},
		{api.Expired, o.Expired, finals[api.Expired]},
	} {
		if c.books != c.all {
			w.t.Errorf("%s: the books count %d %s, and %d jobs are", name, c.books, c.field, c.all)
		}
	}
}

// paced compares the backend's own log with the rate.
func (w *world) paced(name string, calls []call, stood []span) {
	var starts []time.Time
	for _, c := range calls {
		starts = append(starts, c.at)
	}
	frames := w.drains[name].frames(w.began.Add(-time.Minute), time.Now())
	for _, x := range overfull(starts, frames, stood, time.Second, 3*time.Second, 10*time.Second) {
		w.t.Errorf("%s got %d calls in %v from %s, allowed are %.0f:%s", name, x.starts, x.width,
			w.since(x.from), x.allowed, w.listed(calls, x.from, x.from.Add(x.width)))
	}
}

// listed formats the calls of a time, with their workers' strikes.
func (w *world) listed(calls []call, from, to time.Time) string {
	var b strings.Builder
	for _, c := range calls {
		if c.at.Before(from) || !c.at.Before(to) {
			continue
		}
		mark := ""
		if w.struck(c.worker, c.at.Add(-100*time.Millisecond), c.at) {
			mark = " struck"
		}
		fmt.Fprintf(&b, "\n\t%s %s %s %s%s", w.since(c.at), c.worker, c.job[max(0, len(c.job)-8):],
			c.fate, mark)
	}
	return b.String()
}

// together compares the concurrent calls with the concurrency. A call whose worker was struck
// during it isn't counted, since its lease may be another worker's by now. Neither is a call that
// its caller has aborted.
func (w *world) together(name string, calls []call) {
	frames := w.drains[name].frames(w.began.Add(-time.Minute), time.Now())
	for i, c := range calls {
		n := 0
		for _, other := range calls[max(0, i-200):i] {
			if other.ended.After(c.at) && !w.struck(other.worker, other.at, c.at) {
				n++
			}
		}
		allowed := 0
		for _, f := range frames {
			// When the concurrency is lowered, running calls may go on for the time of a call.
			if f.from.Before(c.at) && f.to.After(c.at.Add(-callTimeout-settling)) {
				allowed = max(allowed, f.concurrency)
			}
		}
		if n+1 > allowed {
			w.t.Errorf("%s: at %s %d calls run at once, allowed are %d",
				name, w.since(c.at), n+1, allowed)
			return // one is enough
		}
	}
}

// callsFit compares each job's calls with its end.
func (w *world) callsFit(name string, calls []call) {
	byJob := map[string][]call{}
	for _, c := range calls {
		byJob[c.job] = append(byJob[c.job], c)
	}
	w.crowd.mu.Lock()
	defer w.crowd.mu.Unlock()
	for id, list := range byJob {
		a := w.crowd.jobs[id]
		if a == nil {
			w.t.Errorf("%s was called for %s, which no client has a 202 for", name, id)
			continue
		}
		for i, c := range list {
			if string(c.body) != a.payload && c.fate != aborted {
				w.t.Errorf("%s: %s was called with %q, want %q", name, id, c.body, a.payload)
			}
			if i > 0 {
				w.mayFollow(id, list[i-1], c)
			}
			if !a.canceled.IsZero() && c.at.After(a.canceled.Add(settling)) &&
				!w.struck(c.worker, a.canceled, c.at) {
				w.t.Errorf("%s was canceled at %s and called at %s by %s", id,
					w.since(a.canceled), w.since(c.at), c.worker)
			}
		}
	}
	for id, a := range w.crowd.jobs {
		if a.final.Status != api.Succeeded || !strings.HasPrefix(id, name) {
			continue
		}
		if !slices.ContainsFunc(byJob[id], func(c call) bool { return c.fate == "200" }) {
			w.t.Errorf("%s succeeded, and no call of it was answered with 200", id)
		}
	}
}

// results expects each succeeded job to have the result of one of its calls.
func (w *world) results(name string, calls []call) {
	answered := map[string][]string{}
	for _, c := range calls {
		if c.fate == "200" {
			answered[c.job] = append(answered[c.job], string(c.answer))
		}
	}
	c := w.crowd
	c.mu.Lock()
	var succeeded []*accepted
	for id, a := range c.jobs {
		if a.final.Status == api.Succeeded && strings.HasPrefix(id, name) {
			succeeded = append(succeeded, a)
		}
	}
	c.mu.Unlock()
	var all sync.WaitGroup
	for part := range slices.Chunk(succeeded, len(succeeded)/8+1) {
		all.Go(func() {
			for _, a := range part {
				status, body := c.insistently(apis[0], http.MethodGet,
					"/v1/jobs/"+a.id+"/result", a.client)
				if status != http.StatusOK || !slices.Contains(answered[a.id], string(body)) {
					w.t.Errorf("the result of %s was answered %d: %q, its calls were answered %q",
						a.id, status, body, answered[a.id])
				}
			}
		})
	}
	all.Wait()
}

// mayFollow expects a reason for a second call of a job. The first one was answered with a status
// to retry, broke, or took too long; or its worker was struck between the two.
func (w *world) mayFollow(id string, first, second call) {
	switch first.fate {
	case "429", "500", "503", broken:
		return
	case aborted:
		if first.ended.Sub(first.at) > callTimeout-50*time.Millisecond {
			return
		}
	}
	if !w.struck(first.worker, first.at, second.at) {
		w.t.Errorf("%s was called at %s by %s (%s at %s) and again at %s by %s, "+
			"though %s wasn't struck",
			id, w.since(first.at), first.worker, first.fate, w.since(first.ended),
			w.since(second.at), second.worker, first.worker)
	}
}

// leftovers looks for keys without a TTL. CheckBooks checks the line's own. Each key of asynq must
// be one of its registers, or a task that one of its lists still holds.
func (w *world) leftovers() {
	ctx := w.t.Context()
	held := map[string]bool{}
	for _, name := range backends {
		prefix := "asynq:{" + name + "}:"
		for _, list := range []string{"pending", "active"} {
			for _, id := range w.rdb.LRange(ctx, prefix+list, 0, -1).Val() {
				held[prefix+"t:"+id] = true
			}
		}
		for _, set := range []string{"scheduled", "retry", "completed", "archived"} {
			ids := w.rdb.ZRange(ctx, prefix+set, 0, -1).Val()
			for _, id := range ids {
				held[prefix+"t:"+id] = true
			}
			if set == "archived" && len(ids) > 0 {
				w.t.Errorf("asynq keeps %d archived tickets of %s, for months", len(ids), name)
			}
		}
	}
	var cursor uint64
	for {
		keys, next, err := w.rdb.Scan(ctx, cursor, "*", 1000).Result()
		if err != nil {
			w.t.Errorf("SCAN: %v", err)
			return
		}
		for _, key := range keys {
			ttl := w.rdb.PTTL(ctx, key).Val()
			if ttl == -1 && !w.owned(key) && !held[key] {
				w.t.Errorf("%s has no TTL and no owner", key)
			}
		}
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// owned reports whether a key without a TTL is one of a fixed number, per backend or in total.
func (w *world) owned(key string) bool {
	for _, name := range backends {
		if strings.HasPrefix(key, "fb:{"+name+"}:") {
			return true // checked by CheckBooks
		}
		if rest, ok := strings.CutPrefix(key, "asynq:{"+name+"}:"); ok &&
			!strings.HasPrefix(rest, "t:") {
			return true // lists and counters
		}
	}
	return slices.Contains([]string{"fb:secret", "asynq:queues", "asynq:servers", "asynq:workers"},
		key)
}

// permitTime is how long after a crash a permit may stay taken without a job.
const permitTime = 15 * time.Second

// permits expects every permit of the concurrency limits to be given back, even if no request finds
// one of them full.
func (w *world) permits() {
	deadline := time.Now().Add(permitTime)
	for client := range tiers {
		for ; ; time.Sleep(100 * time.Millisecond) {
			taken := w.taken(client)
			if taken == 0 {
				break
			}
			if time.Now().After(deadline) {
				w.t.Errorf("client %d has %d permits taken and no job, %v after the end",
					client, taken, permitTime)
				break
			}
		}
	}
}

// taken returns how many permits of a client's concurrency limit are taken; 0 after a reported
// failure.
func (w *world) taken(client int) int64 {
	status, answer := w.crowd.insistently(apis[1], http.MethodGet, "/v1/rate-limits", client)
	if status != http.StatusOK {
		w.t.Errorf("the limits of client %d were answered %d", client, status)
		return 0
	}
	var limits api.RateLimits
	mustRead(w.t, answer, &limits)
	for _, l := range limits.Limits {
		if l.Name == "jobs" {
			return l.Policy.Limit - l.Remaining
		}
	}
	w.t.Errorf("client %d has no limit on jobs", client)
	return 0
}

// summary logs how much happened: a run in which nothing happened proves nothing.
func (w *world) summary(calls map[string][]call, finals map[string]map[string]int64, stood []span) {
	longest := time.Duration(0)
	for _, s := range stood {
		longest = max(longest, s.to.Sub(s.from))
	}
	w.crowd.mu.Lock()
	defer w.crowd.mu.Unlock()
	w.t.Logf("answers: %v", w.crowd.answers)
	for _, name := range backends {
		fates := map[string]int{}
		doubled := map[string]int{}
		for _, c := range calls[name] {
			fates[cmp.Or(c.fate, "runs")]++
			doubled[c.job]++
		}
		again := 0
		for _, n := range doubled {
			if n > 1 {
				again++
			}
		}
		w.t.Logf("%s: jobs %v; calls %v; %d jobs called more than once", name, finals[name],
			fates, again)
		if len(calls[name]) == 0 || finals[name][api.Succeeded] == 0 {
			w.t.Errorf("%s: nothing succeeded", name)
		}
	}
	w.t.Logf("%d strikes; the machine stood still %d times, at most for %v",
		len(w.strikes), len(stood), longest.Round(time.Millisecond))
}
