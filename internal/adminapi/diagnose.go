package adminapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/glance"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// sighting is all that a diagnosis is made of.
type sighting struct {
	now      time.Time
	store    storeSeen
	workers  *glance.Seen[int]            // processes; nil: it isn't known how many there are
	backends map[string]backendSeen       // by name
	webhooks map[string]glance.Seen[post] // by backend
	stale    map[string]int64             // answers of the last minute, by operation
}

type storeSeen struct {
	healthy, writable bool
	since             time.Time // of healthy
	warnings          []string
}

type backendSeen struct {
	status  glance.Seen[leaky.Status]
	recent  leaky.Recent
	expires time.Time // the first deadline of a paused line; zero: it isn't known
}

// post is how a backend's webhooks are doing.
type post struct {
	Due     time.Time // when the next attempt is due; zero: none is
	GivenUp time.Time // when a delivery was given up last; zero: never
}

// Bounds of a diagnosis.
const (
	// oldSight is the age from which on something seen says nothing any more. The slowest is read
	// every 10 s.
	oldSight = 15 * time.Second
	// stalledAfter is how long a line may be without a start, beside two of its intervals: a worker
	// that died is noticed by its leases within 10 s.
	stalledAfter = 15 * time.Second
	// nearlyFull is the part of a line's capacity from which on it is worth a look.
	nearlyFull = 0.8
	// halfRate is the factor up to which a backend that recovers is still as good as sick.
	halfRate = 0.5
	// overdue is how late a webhook may be: attempts are made within seconds, and bounded by 30 s.
	overdue = time.Minute
	// givenUpLately is how long a delivery that was given up is worth a look.
	givenUpLately = time.Hour
)

// Of so many jobs that ended in the last minute, and such a part of them, failures are worth a
// look, or an alarm.
const (
	fewFailed, someFailed   = 3, 0.05
	manyFailed, mostlyFails = 10, 0.5
)

// Things of findings.
const (
	thingStore    = "store"
	thingWorkers  = "workers"
	thingBackend  = "backend"
	thingFailures = "failures"
	thingWebhooks = "webhooks"
	thingStale    = "stale answers"
	thingBooks    = "books"
	thingConfig   = "config"
)

// levels are all levels, from the best to the worst. It is worse not to know than to be warned.
var levels = []string{api.LevelOK, api.LevelWarning, api.LevelUnknown, api.LevelCritical}

// diagnose says what is right and what is wrong. It is a pure function of what was seen.
func diagnose(s sighting) api.Diagnosis {
	all := []api.Finding{s.ofStore()}
	if s.workers != nil {
		all = append(all, s.ofWorkers())
	}
	for _, name := range slices.Sorted(maps.Keys(s.backends)) {
		f := s.ofBackend(name, s.backends[name])
		f.Thing, f.Backend = thingBackend, name
		all = append(all, f)
	}
	all = append(all, s.worst(thingFailures, s.ofFailures))
	if len(s.webhooks) > 0 {
		all = append(all, s.worst(thingWebhooks, s.ofWebhooks))
	}
	all = append(all, s.ofStale(), s.worst(thingBooks, s.ofBooks), s.ofConfig())
	slices.SortStableFunc(all, func(a, b api.Finding) int {
		return slices.Index(levels, b.Level) - slices.Index(levels, a.Level)
	})
	return api.Diagnosis{Level: all[0].Level, At: api.Time{Time: s.now}, Findings: all}
}

// worst is the worst of what is found of each backend.
func (s sighting) worst(thing string, of func(name string, b backendSeen) api.Finding) api.Finding {
	worst := ok("")
	for _, name := range slices.Sorted(maps.Keys(s.backends)) {
		f := of(name, s.backends[name])
		if slices.Index(levels, f.Level) > slices.Index(levels, worst.Level) {
			worst = f
		}
	}
	worst.Thing = thing
	return worst
}

func ok(cause string) api.Finding { return api.Finding{Level: api.LevelOK, Cause: cause} }

// unknown is what is found of something that was seen too long ago, or never. It comes without
// advice.
func unknown(seen time.Time) api.Finding {
	f := api.Finding{Level: api.LevelUnknown, Cause: "not seen yet"}
	if !seen.IsZero() {
		f.Cause, f.Since = "not seen lately", web.Time(seen)
	}
	return f
}

func (s sighting) old(seen time.Time) bool { return s.now.Sub(seen) > oldSight }

func (s sighting) ofStore() api.Finding {
	f := api.Finding{Thing: thingStore, Level: api.LevelCritical, Since: web.Time(s.store.since),
		Next: "forebay docs operating"}
	switch {
	case !s.store.healthy:
		f.Cause = "unavailable: no job can be taken"
	case !s.store.writable:
		f.Cause, f.Since = "takes no writes: no job can be taken", nil
	case len(s.store.warnings) > 0:
		f.Level, f.Since = api.LevelWarning, nil
		f.Cause = strings.TrimSuffix(s.store.warnings[0], ".")
		if more := len(s.store.warnings) - 1; more > 0 {
			f.Cause += fmt.Sprintf(" (and %d more)", more)
		}
	default:
		f = ok("")
		f.Thing = thingStore
	}
	return f
}

func (s sighting) ofWorkers() api.Finding {
	f := ok(fmt.Sprint(s.workers.Value))
	switch {
	case s.old(s.workers.At):
		f = unknown(s.workers.At)
	case s.workers.Value == 0:
		f = api.Finding{Level: api.LevelCritical, Cause: "none runs: no backend is called",
			Next: "forebay docs operating"}
	}
	f.Thing = thingWorkers
	return f
}

// ofBackend is what is found of a backend and its line.
func (s sighting) ofBackend(name string, b backendSeen) api.Finding {
	st := b.status.Value
	if s.old(b.status.At) {
		return unknown(b.status.At)
	}
	held := st.GateUntil.After(st.Now) || st.Probing
	noWorker := s.workers != nil && !s.old(s.workers.At) && s.workers.Value == 0
	stalled := stalledAfter
	if st.EffectiveRate > 0 {
		stalled += time.Duration(2 / st.EffectiveRate * float64(time.Second))
	}
	room := int64(st.Capacity) - st.Waiting - st.Delayed
	explain := "forebay explain backend/" + name
	faster := "forebay rate " + name + " RATE --dry-run"
	switch {
	case st.Paused:
		return s.paused(name, b)
	case st.WaitingOn == leaky.OnQueuePaused:
		return api.Finding{Level: api.LevelWarning, Next: explain,
			Cause: fmt.Sprintf("the queue of its tickets is paused; %d wait", st.Waiting)}
	case held || st.Factor <= halfRate || st.Factor < 1 && b.recent.Books.Throttled > 0:
		return api.Finding{Level: api.LevelCritical, Cause: troubleCause(st), Next: explain}
	case st.Waiting > 0 && noWorker:
		return api.Finding{Level: api.LevelCritical, Next: "forebay docs operating",
			Cause: fmt.Sprintf("%d wait, and no worker runs", st.Waiting)}
	case b.recent.StalledFor > stalled:
		return api.Finding{Level: api.LevelCritical, Next: explain,
			Since: web.Time(b.status.At.Add(-b.recent.StalledFor)),
			Cause: fmt.Sprintf("%d wait, and no call begins", st.Waiting)}
	case room <= 0:
		return api.Finding{Level: api.LevelCritical, Next: faster,
			Cause: fmt.Sprintf("its line is full: %d wait, and more are refused", st.Waiting)}
	case st.Factor < 1:
		return api.Finding{Level: api.LevelWarning, Next: explain,
			Cause: "recovers: drains " + st.EffectiveText() + " of " + st.Rate.String()}
	case float64(room) <= (1-nearlyFull)*float64(st.Capacity):
		return api.Finding{Level: api.LevelWarning, Next: faster,
			Cause: fmt.Sprintf("its line has room for %d more of %d", room, st.Capacity)}
	}
	return ok("")
}

// troubleCause says what a backend does that is in trouble.
func troubleCause(st leaky.Status) string {
	text := map[leaky.Sign]string{leaky.Throttled: "answers 429 or 503",
		leaky.Timeout: "doesn't answer in time", leaky.Unreachable: "can't be reached"}[st.Cause]
	if text == "" {
		text = "asked for rest"
	}
	text += ": drains " + st.EffectiveText() + " of " + st.Rate.String()
	switch {
	case st.Probing:
		text += ", one call probes"
	case st.GateUntil.After(st.Now):
		text += ", no call before " + st.GateUntil.UTC().Format("15:04:05")
	}
	return text
}

func (s sighting) paused(name string, b backendSeen) api.Finding {
	st := b.status.Value
	note := st.Notes["paused"]
	f := api.Finding{Level: api.LevelWarning, Since: web.Time(note.At),
		Next: "forebay resume " + name, Cause: "paused"}
	if note.By != "" {
		f.Cause += " by " + note.By
	}
	if !note.Ends.IsZero() {
		f.Cause += " until " + note.Ends.UTC().Format("2006-01-02 15:04:05")
	}
	if note.Reason != "" {
		f.Cause += " (" + note.Reason + ")"
	}
	f.Cause += fmt.Sprintf("; %d wait", st.Waiting)
	if !b.expires.IsZero() {
		f.Cause += ", the first expires at " + b.expires.UTC().Format("2006-01-02 15:04")
	}
	return f
}

// ofFailures is what is found of the jobs of a backend that ended in the last minute.
func (s sighting) ofFailures(name string, b backendSeen) api.Finding {
	if s.old(b.status.At) {
		return unknown(b.status.At)
	}
	r := b.recent.Books
	// A redrive takes a job from the books' failed.
	bad := r.Failed + r.Redriven + r.Expired
	ended := bad + r.Succeeded
	level := api.LevelOK
	switch {
	case bad >= manyFailed && float64(bad) >= mostlyFails*float64(ended):
		level = api.LevelCritical
	case bad >= fewFailed && float64(bad) >= someFailed*float64(ended):
		level = api.LevelWarning
	default:
		return ok("")
	}
	return api.Finding{Level: level, Next: "forebay jobs ls --backend " + name + " --status failed",
		Cause: fmt.Sprintf("%s: %d of %d jobs failed or expired in the last %.0f s", name, bad,
			ended, b.recent.Over.Seconds())}
}

// ofWebhooks is what is found of a backend's webhooks.
func (s sighting) ofWebhooks(name string, _ backendSeen) api.Finding {
	seen := s.webhooks[name]
	if s.old(seen.At) {
		return unknown(seen.At)
	}
	next := "forebay webhooks ls --backend " + name
	switch p := seen.Value; {
	case !p.Due.IsZero() && s.now.Sub(p.Due) > overdue:
		return api.Finding{Level: api.LevelCritical, Since: web.Time(p.Due), Next: next,
			Cause: name + ": one is overdue, so none is sent"}
	case !p.GivenUp.IsZero() && s.now.Sub(p.GivenUp) < givenUpLately:
		return api.Finding{Level: api.LevelWarning, Since: web.Time(p.GivenUp),
			Next: next + " --state failed", Cause: name + ": one was given up"}
	}
	return ok("")
}

// ofStale is what is found of the answers that clients got in the last minute.
func (s sighting) ofStale() api.Finding {
	total, most := int64(0), ""
	for _, name := range slices.Sorted(maps.Keys(s.stale)) {
		if total += s.stale[name]; most == "" || s.stale[name] > s.stale[most] {
			most = name
		}
	}
	f := ok("")
	if total > 0 {
		f = api.Finding{Level: api.LevelWarning, Next: "forebay cache ls",
			Cause: fmt.Sprintf("%d served in the last minute, most of %s", total, most)}
	}
	f.Thing = thingStale
	return f
}

// ofBooks is what is found of a backend's books.
func (s sighting) ofBooks(name string, b backendSeen) api.Finding {
	if s.old(b.status.At) {
		return unknown(b.status.At)
	}
	next := "forebay books " + name
	switch st := b.status.Value; {
	case st.Difference() != 0:
		return api.Finding{Level: api.LevelCritical, Next: next,
			Cause: fmt.Sprintf("%s: the books are off by %d jobs", name, st.Difference())}
	case b.recent.Books.Lost > 0:
		return api.Finding{Level: api.LevelWarning, Next: next,
			Cause: fmt.Sprintf("%s: the store has lost %d jobs", name, b.recent.Books.Lost)}
	}
	return ok("")
}

// ofConfig names the backends whose file isn't in force as it stands. That is what operators do,
// and no fault.
func (s sighting) ofConfig() api.Finding {
	var overridden []string
	for _, name := range slices.Sorted(maps.Keys(s.backends)) {
		if st := s.backends[name].status.Value; len(st.Override.Names()) > 0 {
			overridden = append(overridden, name)
		}
	}
	f := ok("")
	if len(overridden) > 0 {
		f.Cause = "overridden for " + strings.Join(overridden, ", ")
	}
	f.Thing = thingConfig
	return f
}
