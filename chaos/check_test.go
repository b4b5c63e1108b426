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

// check holds the end against every promise.
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
	w.lookAtAll() // nothing has changed since
	w.summary(calls, finals, stood)
}

// lookAtAll asks for every job's status: see compares.
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
				for deadline := time.Now().Add(startTime); !c.look(a, apis[i%len(apis)]); time.Sleep(100 * time.Millisecond) {
					if time.Now().After(deadline) {
						w.t.Errorf("nobody says where %s stands", id)
						break
					}
				}
			}
		})
	}
	all.Wait()
}

// ends counts final states by backend and state. Each job must have one.
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

// counts holds the line's books against the jobs: a job that ended twice, or was accepted without anybody's knowing, shows here.
func (w *world) counts(name string, finals map[string]int64) {
	var b api.Backend
	w.until("the admin API tells of it", startTime, func() (ok bool) { b, ok = w.backend(name); return ok })
	known := int64(0)
	for _, n := range finals {
		known += n
	}
	o := b.Outcomes
	for _, c := range []struct {
		what       string
		books, all int64
	}{
		{"accepted", o.Accepted, known},
		{api.Succeeded, o.Succeeded, finals[api.Succeeded]},
		{api.Failed, o.Failed, finals[api.Failed]},
		{api.Canceled, o.Canceled, finals[api.Canceled]},
		{api.Expired, o.Expired, finals[api.Expired]},
	} {
		if c.books != c.all {
			w.t.Errorf("%s: the books count %d %s, and %d jobs are", name, c.books, c.what, c.all)
		}
	}
}

// paced holds the backend's own log against the rate.
func (w *world) paced(name string, calls []call, stood []span) {
	var starts []time.Time
	for _, c := range calls {
		starts = append(starts, c.at)
	}
	frames := w.drains[name].frames(w.began.Add(-time.Minute), time.Now())
	for _, x := range overfull(starts, frames, stood, time.Second, 3*time.Second, 10*time.Second) {
		w.t.Errorf("%s got %d calls in %v from %s, allowed are %.0f:%s", name, x.starts, x.width, w.since(x.from), x.allowed,
			w.told(calls, x.from, x.from.Add(x.width)))
	}
}

// told lists the calls of a time, with their workers' strikes.
func (w *world) told(calls []call, from, to time.Time) string {
	var b strings.Builder
	for _, c := range calls {
		if c.at.Before(from) || !c.at.Before(to) {
			continue
		}
		mark := ""
		if w.struck(c.who, c.at.Add(-100*time.Millisecond), c.at) {
			mark = " struck"
		}
		fmt.Fprintf(&b, "\n\t%s %s %s %s%s", w.since(c.at), c.who, c.job[max(0, len(c.job)-8):], c.fate, mark)
	}
	return b.String()
}

// together holds the calls at one time against the concurrency. A call whose worker was struck in it isn't counted: its lease
// may be another's by now. One that its caller has aborted isn't any more.
func (w *world) together(name string, calls []call) {
	frames := w.drains[name].frames(w.began.Add(-time.Minute), time.Now())
	for i, c := range calls {
		n := 0
		for _, other := range calls[max(0, i-200):i] {
			if other.ended.After(c.at) && !w.struck(other.who, other.at, c.at) {
				n++
			}
		}
		allowed := 0
		for _, f := range frames {
			// What runs already may go on for a call's time when the concurrency is lowered.
			if f.from.Before(c.at) && f.to.After(c.at.Add(-callTimeout-settling)) {
				allowed = max(allowed, f.concurrency)
			}
		}
		if n+1 > allowed {
			w.t.Errorf("%s: at %s %d calls run at once, allowed are %d", name, w.since(c.at), n+1, allowed)
			return // one tells enough
		}
	}
}

// callsFit holds each job's calls against its end.
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
			w.t.Errorf("%s was called for %s, which nobody was promised", name, id)
			continue
		}
		for i, c := range list {
			if string(c.body) != a.payload && c.fate != aborted {
				w.t.Errorf("%s: %s was called with %q, want %q", name, id, c.body, a.payload)
			}
			if i > 0 {
				w.mayFollow(id, list[i-1], c)
			}
			if !a.canceled.IsZero() && c.at.After(a.canceled.Add(settling)) && !w.struck(c.who, a.canceled, c.at) {
				w.t.Errorf("%s was canceled at %s and called at %s by %s", id, w.since(a.canceled), w.since(c.at), c.who)
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

// results wants of each job that succeeded the bytes of one of its calls.
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
				status, body := c.insistently(apis[0], http.MethodGet, "/v1/jobs/"+a.id+"/result", a.client)
				if status != http.StatusOK || !slices.Contains(answered[a.id], string(body)) {
					w.t.Errorf("the result of %s was answered %d: %q, its calls were answered %q", a.id, status, body, answered[a.id])
				}
			}
		})
	}
	all.Wait()
}

// mayFollow wants a reason for a second call of a job: the first was answered with something to repeat, broke, or took too long;
// or its worker was struck between the two.
func (w *world) mayFollow(id string, first, second call) {
	switch first.fate {
	case "429", "500", "503", broken:
		return
	case aborted:
		if first.ended.Sub(first.at) > callTimeout-50*time.Millisecond {
			return
		}
	}
	if !w.struck(first.who, first.at, second.at) {
		w.t.Errorf("%s was called at %s by %s (%s at %s) and again at %s by %s, and nothing had happened to %s", id,
			w.since(first.at), first.who, first.fate, w.since(first.ended), w.since(second.at), second.who, first.who)
	}
}

// leftovers looks for keys without a TTL. The line's own are CheckBooks's; of asynq's each must be one of its registers, or a
// task that one of its lists still holds.
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

// owned reports whether a key without a TTL is one of those that there is one of, for each backend or in all.
func (w *world) owned(key string) bool {
	for _, name := range backends {
		if strings.HasPrefix(key, "fb:{"+name+"}:") {
			return true // CheckBooks has looked at them
		}
		if rest, ok := strings.CutPrefix(key, "asynq:{"+name+"}:"); ok && !strings.HasPrefix(rest, "t:") {
			return true // lists and counters
		}
	}
	return slices.Contains([]string{"fb:secret", "asynq:queues", "asynq:servers", "asynq:workers"}, key)
}

// permitTime is how long after a crash a permit may stay taken for no job.
const permitTime = 15 * time.Second

// permits wants every permit of the limits on jobs at one time given back, though nobody finds one of them full.
func (w *world) permits() {
	deadline := time.Now().Add(permitTime)
	for client := range tiers {
		for ; ; time.Sleep(100 * time.Millisecond) {
			taken := w.taken(client)
			if taken == 0 {
				break
			}
			if time.Now().After(deadline) {
				w.t.Errorf("client %d has %d permits taken and no job, %v after the end", client, taken, permitTime)
				break
			}
		}
	}
}

// taken is how many permits a client's limit on jobs lacks; 0 after a failure that was told.
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

// summary says how much was shown: a run in which nothing happened proves nothing.
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
		w.t.Logf("%s: jobs %v; calls %v; %d jobs called more than once", name, finals[name], fates, again)
		if len(calls[name]) == 0 || finals[name][api.Succeeded] == 0 {
			w.t.Errorf("%s: nothing succeeded", name)
		}
	}
	w.t.Logf("%d strikes; the machine stood still %d times, at most for %v", len(w.strikes), len(stood), longest.Round(time.Millisecond))
}
