package admission

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// desk is an Admission over real Redis: two operations on one backend, and a client of tier pro.
type desk struct {
	testing.TB
	*Admission
	line    *leaky.Line
	cache   *cache.Cache
	report  string // stale answers are shared for all; its fallback operation is summary
	summary string
	caller  Caller
	down    atomic.Bool // the store is unavailable
	sick    atomic.Bool // the backend is
}

func (d *desk) Healthy() bool             { return !d.down.Load() }
func (d *desk) Sick(string, float64) bool { return d.sick.Load() }

// newDesk makes a desk whose line takes so many jobs. change may be nil.
func newDesk(t testing.TB, capacity int, change func(*desk, *Config)) *desk {
	t.Helper()
	rdb, backend := redistest.Client(t), redistest.Name(t, "b")
	d := &desk{TB: t, report: redistest.Name(t, "report"), summary: redistest.Name(t, "summary")}
	rate, err := leaky.ParseRate("10/s")
	if err != nil {
		t.Fatal(err)
	}
	d.line = leaky.New(rdb, leaky.Settings{
		Backend:    backend,
		Drain:      leaky.Drain{Rate: rate, Burst: 1, Concurrency: 1},
		Room:       leaky.Room{Capacity: capacity, MaxWait: time.Hour, ClientShare: 1},
		Attempts:   1,
		KeepFailed: time.Hour,
	}).Limited(limits.Script{})
	d.cache = cache.New(rdb)
	d.caller = Caller{Client: identity.Client{ID: redistest.Name(t, "acme"), Name: "acme",
		Tier: "pro", Address: "192.0.2.1"}}
	c := Config{
		Parts: Parts{
			Limiter: limits.New(rdb, false), Answers: degrade.New(d.cache), Store: d, Health: d,
			Lines:  map[string]Line{backend: d.line},
			Secret: jobs.NewSecret(rdb),
		},
		Rules: Rules{
			Tiers: map[string]Tier{"pro": {Weight: 1}},
			Operations: []Operation{
				{Name: d.report, Backend: backend, Cost: Cost{Fixed: 1}, Keep: time.Hour, MaxAge: time.Hour,
					Overload: degrade.Policy{Share: degrade.ShareAll, StaleFor: time.Hour, Steps: []degrade.Step{
						{Kind: degrade.Stale}, {Kind: degrade.Operation, Operation: d.summary}, {Kind: degrade.Reject}}}},
				{Name: d.summary, Backend: backend, Cost: Cost{Fixed: 1}, Keep: time.Hour, MaxAge: time.Hour},
			},
		},
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if change != nil {
		change(d, &c)
	}
	d.Admission = New(c)
	return d
}

// limit is a limit on the client of so many requests an hour.
func (d *desk) limit(name string, amount int64) Limit {
	d.Helper()
	rule, err := limits.Compile(limits.Limit{Name: name, Owner: d.caller.ID,
		Algorithm: limits.FixedWindow,
		Per:       limits.PerClient, Amount: amount, Window: time.Hour})
	if err != nil {
		d.Fatal(err)
	}
	return Limit{Rule: rule}
}

// request is a request for the report with a payload.
func (d *desk) request(payload string) Request {
	return Request{Caller: d.caller, Operation: d.Operation(d.report), Cost: 1,
		Payload: []byte(payload), Body: []byte(payload),
		Priority: jobs.Normal}
}

func (d *desk) submit(r Request) Outcome {
	d.Helper()
	o, err := d.Submit(d.Context(), r)
	if err != nil {
		d.Fatal(err)
	}
	return o
}

// want checks an outcome's kind and reason.
func want[T Outcome](d *desk, o Outcome, reason string) T {
	d.Helper()
	got, ok := o.(T)
	if !ok || o.About().Reason != reason {
		d.Fatalf("%T %+v, want %v with reason %q", o, o, reflect.TypeFor[T](), reason)
	}
	return got
}

func (d *desk) store(payload string, age time.Duration) {
	d.Helper()
	key := d.Operation(d.report).Overload.CacheKey(d.report, d.caller.ID, d.caller.Tier,
		[]byte(payload))
	if err := d.cache.Put(d.Context(), key,
		cache.Answer{Status: 200, Body: []byte("stored"), Age: age}, time.Hour,
		cache.Owner{Operation: d.report}); err != nil {
		d.Fatal(err)
	}
}

func (d *desk) spent() int64 {
	d.Helper()
	v, err := d.Peek(d.Context(), d.Plan(d.caller, d.report), Subject(d.caller.Client, d.report))
	if err != nil {
		d.Fatal(err)
	}
	return v.Standings[0].Rule.Limit().Amount - v.Standings[0].Remaining
}

func TestARequestGetsTheFirstThingThatAnswersIt(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 2, func(d *desk, c *Config) {
		c.Tiers["pro"] = Tier{Weight: 1, Limits: []Limit{d.limit("ten", 10)}}
	})
	first := want[*Accepted](d, d.submit(d.request("1")), ReasonNew)
	if first.Fallback || first.Look.Position != 1 || first.Look.Job.Operation != d.report ||
		first.Verdict.Standings[0].Remaining != 9 {
		t.Errorf("%+v", first)
	}
	want[*Accepted](d, d.submit(d.request("2")), ReasonNew)
	full := want[*Refused](d, d.submit(d.request("3")), "line_full")
	if full.By != ByLine || full.Line != leaky.LineFull || full.RetryAfter <= 0 || !full.Missed {
		t.Errorf("%+v", full)
	}
	d.store("3", time.Minute)
	if o := want[*Stored](d, d.submit(d.request("3")), "line_full"); o.Fresh ||
		string(o.Answer.Body) != "stored" || o.Missed {
		t.Errorf("%+v", o)
	}
	if n := d.spent(); n != 2 {
		t.Errorf("%d were spent by two jobs", n)
	}
}

func TestARefusalByALimitLeadsToTheFallbackOperation(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 10, func(d *desk, c *Config) {
		c.Operations[0].Limits = []Limit{d.limit("one", 1)}
	})
	want[*Accepted](d, d.submit(d.request("1")), ReasonNew)
	o := want[*Accepted](d, d.submit(d.request("2")), "one")
	if !o.Fallback || o.Look.Job.Operation != d.summary || o.Plan != d.Plan(d.caller, d.summary) {
		t.Errorf("%+v", o)
	}
	refused := d.request("3")
	refused.Operation = d.Operation(d.report)
	d.Operation(d.report).Overload.Steps = nil
	if o := want[*Refused](d, d.submit(refused), "one"); o.By != ByLimits || o.RetryAfter <= 0 ||
		o.Verdict == nil {
		t.Errorf("%+v", o)
	}
}

// One key, one answer: also where the first request got a fallback operation's job.
func TestADuplicateRequestGetsTheJobOfTheFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 10, func(d *desk, c *Config) {
		c.Operations[0].Limits = []Limit{d.limit("one", 1)}
	})
	plain, simpler := d.request("1"), d.request("2")
	plain.Key, simpler.Key = "a", "b"
	first := want[*Accepted](d, d.submit(plain), ReasonNew)
	second := want[*Accepted](d, d.submit(simpler), "one")
	if o := want[*Replayed](d, d.submit(plain),
		ReasonReplayed); o.Look.Job.ID != first.Look.Job.ID || o.Fallback {
		t.Errorf("%+v", o)
	}
	if o := want[*Replayed](d, d.submit(simpler),
		ReasonReplayed); o.Look.Job.ID != second.Look.Job.ID || !o.Fallback {
		t.Errorf("%+v", o)
	}
	simpler.Body = []byte("3")
	if o := want[*Refused](d, d.submit(simpler), ""); o.By != ByOtherRequest {
		t.Errorf("%+v", o)
	}
	if n := d.spent(); n != 1 {
		t.Errorf("%d were spent", n)
	}
}

func TestWhileTheStoreIsUnavailableWhatIsKnownIsServed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 10, nil)
	d.store("1", time.Minute)
	d.down.Store(true)
	if o := want[*Stored](d, d.submit(d.request("1")), ReasonStore); o.StoreError == nil ||
		o.Fresh {
		t.Errorf("%+v", o)
	}
	if o := want[*Refused](d, d.submit(d.request("2")), ReasonStore); o.By != ByStore ||
		!errors.Is(o.StoreError, errUnhealthy) {
		t.Errorf("%+v", o)
	}
	d.RejectOnFailure = true
	want[*Refused](d, d.submit(d.request("1")), ReasonStore)
}

func TestARequestForStoredAnswersGetsNoJob(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 10, nil)
	r := d.request("1")
	r.Wish = degrade.Wish{OnlyIfCached: true}
	if o := want[*Refused](d, d.submit(r), ""); o.By != ByNoAnswer || !o.Missed {
		t.Errorf("%+v", o)
	}
	d.store("1", time.Minute)
	want[*Stored](d, d.submit(r), ReasonOnlyCached)
}

// Where every request for a sick backend has a stale answer, one is let through now and then.
func TestARequestTriesASickBackend(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 10, func(d *desk, c *Config) {
		c.Operations[0].Overload.Sick = degrade.Sick{On: true, Below: 0.5}
	})
	d.store("1", time.Minute)
	d.sick.Store(true)
	for range 3 {
		want[*Stored](d, d.submit(d.request("1")), ReasonSick)
	}
	d.trials.mu.Lock()
	d.trials.last[d.report] = time.Now().Add(-trialRest) // as if that time had passed
	d.trials.mu.Unlock()
	want[*Accepted](d, d.submit(d.request("1")), ReasonNew)
	want[*Stored](d, d.submit(d.request("1")), ReasonSick)
}

// A request that no limit can be asked about is a fault of the caller, not of the store.
func TestAFaultOfTheCallerIsAnError(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 10, func(d *desk, c *Config) {
		c.Tiers["pro"] = Tier{Weight: 1, Limits: []Limit{d.limit("ten", 10)}}
	})
	r := d.request("1")
	r.Cost = 0
	if o, err := d.Submit(context.Background(), r); !errors.Is(err, limits.ErrCost) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestACheckIsDecidedAsTheOperationWants(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 10, func(d *desk, c *Config) {
		c.Operations[0].Limits, c.Operations[0].OnFailure = []Limit{d.limit("one", 1)}, CheckAllow
		c.Operations[1].Limits = []Limit{d.limit("two", 2)}
	})
	check := func(operation string) Outcome {
		o, err := d.Check(t.Context(), d.caller, d.Operation(operation), 1)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	want[*Passed](d, check(d.report), ReasonChecked)
	want[*Refused](d, check(d.report), "one")
	want[*Passed](d, check(d.summary), ReasonChecked)
	d.down.Store(true)
	want[*Passed](d, check(d.report), ReasonStore)
	if o := want[*Refused](d, check(d.summary), ReasonStore); o.By != ByStore {
		t.Errorf("%+v", o)
	}
}
