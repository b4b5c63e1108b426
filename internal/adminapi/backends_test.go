package adminapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/testforebay"
)

func (w *world) backendNow(fields ...[2]string) api.Backend {
	w.Helper()
	return w.backendOf(w.Want(w.Call("GET", w.Admin+"/admin/v1/backends/"+w.Backend, "", fields...),
		200))
}

func (w *world) backendOf(a answer) api.Backend {
	w.Helper()
	var b api.Backend
	if err := json.Unmarshal(a.Text, &b); err != nil {
		w.Fatal(err)
	}
	return b
}

func (w *world) tune(body string, fields ...[2]string) answer {
	w.Helper()
	return w.Call("PATCH", w.Admin+"/admin/v1/backends/"+w.Backend, body, fields...)
}

func TestTuningShowsAtOnceAndStaysOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	before := w.backendNow()
	if before.Rate != (api.Setting[string]{Configured: "10/s", Effective: "10/s"}) ||
		before.TunedBy != "" || before.TunedAt != nil || before.WaitingOn != "idle" {
		t.Errorf("before = %+v", before)
	}
	all := `{"rate":"6/m","burst":2,"concurrency":3,"capacity":4,"paused":true}`
	b := w.backendOf(w.Want(w.tune(all, field("Forebay-Operator", "maria")), 200))
	if b.Rate.Configured != "10/s" || b.Rate.Override == nil || *b.Rate.Override != "6/m" ||
		b.Rate.Effective != "6/m" ||
		b.Burst.Effective != 2 || b.Concurrency.Effective != 3 || b.Capacity.Effective != 4 ||
		*b.Capacity.Override != 4 || b.Capacity.Configured != 1000 || !b.Paused {
		t.Errorf("tuned = %+v", b)
	}
	if b.TunedBy != "maria" || b.TunedAt == nil || time.Since(b.TunedAt.Time).Abs() > time.Minute {
		t.Errorf("tuned by %s at %v", b.TunedBy, b.TunedAt)
	}
	// One field alone leaves the others; a process that starts later sees it all.
	w.Want(w.tune(`{"paused":false}`), 200)
	_, _, second := w.Serve()
	b = w.backendOf(w.Want(w.Call("GET", second+"/admin/v1/backends/"+w.Backend, ""), 200))
	if b.Paused || b.Rate.Effective != "6/m" || b.TunedBy != "127.0.0.1" {
		t.Errorf("later = %+v", b)
	}
	w.audited(`msg="backend tuned"`, "by=maria address=127.0.0.1", "backend="+w.Backend+
		` rate="10/s → 6/m" burst="1 → 2" concurrency="10 → 3" capacity="1000 → 4"`+
		` paused="false → true"`+"\n")
	w.audited(`msg="backend tuned"`, "by=127.0.0.1",
		"backend="+w.Backend+` paused="true → false"`+"\n")
	b = w.backendOf(w.Want(w.Call("DELETE", w.Admin+"/admin/v1/backends/"+w.Backend+"/override", "",
		field("Forebay-Operator", "jo")), 200))
	if b.Rate.Override != nil || b.Rate.Effective != "10/s" || b.Burst.Override != nil ||
		b.Concurrency.Effective != 10 || b.TunedBy != "jo" {
		t.Errorf("reset = %+v", b)
	}
	w.audited(`msg="backend reset"`, "by=jo address=127.0.0.1", "backend="+w.Backend+
		` rate="6/m → 10/s" burst="2 → 1" concurrency="3 → 10" capacity="4 → 1000"`+"\n")
}

// audited checks that the log has one line of audit with all of these.
func (w *world) audited(parts ...string) {
	w.Helper()
	found := 0
	for line := range strings.Lines(w.Logs.String()) {
		has := strings.Contains(line, "level=INFO") && strings.Contains(line, " audit=true ")
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			found++
		}
	}
	if found != 1 {
		w.Errorf("%d lines of audit with %q in\n%s", found, parts, w.Logs)
	}
}

func TestFeedbackIsSwitchedLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	on, off := "on", "off"
	if b := w.backendNow(); b.Feedback != (api.Setting[string]{Configured: on, Effective: on}) {
		t.Errorf("before = %+v", b.Feedback)
	}
	b := w.backendOf(w.Want(w.tune(`{"feedback":"off"}`), 200))
	if b.Feedback.Override == nil || *b.Feedback.Override != off || b.Feedback.Effective != off ||
		b.Feedback.Configured != on {
		t.Errorf("off = %+v", b.Feedback)
	}
	w.Settle(leaky.Settlement{Ticket: w.Start(w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID),
		To: jobs.Delayed, Delay: time.Hour, Sign: leaky.Timeout})
	if b := w.backendNow(); b.Factor != 1 || b.Cause != nil {
		t.Errorf("a timeout without feedback leaves %+v", b)
	}
	b = w.backendOf(w.Want(w.tune(`{"feedback":"on"}`), 200))
	if b.Feedback.Override == nil || *b.Feedback.Override != on {
		t.Errorf("on = %+v", b.Feedback)
	}
	w.Want(w.Call("DELETE", w.Admin+"/admin/v1/backends/"+w.Backend+"/override", ""), 200)
	if b := w.backendNow(); b.Feedback.Override != nil || b.Feedback.Effective != on {
		t.Errorf("reset = %+v", b.Feedback)
	}
	w.audited(`feedback="on → off"`)
	w.audited(`feedback="off → on"`)
}

func TestABackendsTroubleIsShownWithItsCause(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		func(s *setup) {
			s.Line.Rate, s.Line.Burst = testforebay.Must(leaky.ParseRate("6000/m")),
				1
		})
	if b := w.backendNow(); b.Factor != 1 || b.Cause != nil || b.Probing || b.GateUntil != nil ||
		b.Rate.Effective != "6000/m" {
		t.Errorf("well = %+v", b)
	}
	submit := func() string { return w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID }
	w.Settle(leaky.Settlement{Ticket: w.Start(submit()), To: jobs.Delayed, Delay: time.Hour,
		Sign: leaky.Timeout})
	b := w.backendNow()
	if b.Factor != 0.5 || b.Cause == nil || *b.Cause != "timeout" || b.Rate.Effective != "3000/m" ||
		b.Rate.Configured != "6000/m" || b.GateUntil != nil {
		t.Errorf("after a timeout = %+v", b)
	}
	id := submit()
	w.Settle(leaky.Settlement{Ticket: w.Start(id), To: jobs.Waiting, Sign: leaky.Throttled,
		Gate: 1500 * time.Millisecond})
	if b = w.backendNow(); b.GateUntil == nil || b.WaitingOn != "cooldown" ||
		b.Outcomes.Throttled != 1 {
		t.Errorf("throttled = %+v", b)
	}
	for _, want := range []string{`drain_rate{backend="` + w.Backend + `",kind="effective"} 50`,
		`effective_rate_factor{backend="` + w.Backend + `"} 0.5`} {
		if !strings.Contains(string(w.Metrics()), "forebay_"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	probe := w.Start(id)
	if b = w.backendNow(); !b.Probing || b.GateUntil != nil {
		t.Errorf("probing = %+v", b)
	}
	w.Settle(leaky.Settlement{Ticket: probe, To: jobs.Succeeded, Took: time.Millisecond,
		Result: jobs.Meta{Status: 200}})
	if b = w.backendNow(); b.Probing {
		t.Errorf("the probe has passed: %+v", b)
	}
}

func TestAnUnlimitedBackendInTroubleIsCalledByFewerAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) { s.Line.Rate = leaky.Unlimited })
	w.Settle(leaky.Settlement{Ticket: w.Start(w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID),
		To: jobs.Delayed, Delay: time.Hour, Sign: leaky.Unreachable})
	if b := w.backendNow(); b.Rate.Effective != "unlimited" || b.Concurrency.Effective != 5 ||
		*b.Cause != "unreachable" {
		t.Errorf("backend = %+v", b)
	}
}

// A reply that is lost leaves open whether the change was made, and an audit that keeps silent
// about it is none.
func TestAChangeOfUnknownOutcomeIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *setup) {
		s.Wrap = func(l testforebay.Line) testforebay.Line { return deafLine{l} }
	})
	w.Problem(w.tune(`{"burst":2}`, field("Forebay-Operator", "maria")),
		http.StatusServiceUnavailable, api.CodeStore)
	w.audited(`msg="backend tuned"`, "by=maria", "outcome=unknown", `burst="1 → 2"`)
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	w.Problem(w.Call("DELETE", w.Admin+"/admin/v1/jobs/"+id, ""), http.StatusServiceUnavailable,
		api.CodeStore)
	w.audited(`msg="job canceled"`, "outcome=unknown", "job_id="+id)
	w.Problem(w.Call("POST", w.Admin+"/admin/v1/jobs/"+id+"/redrive", ""),
		http.StatusServiceUnavailable, api.CodeStore)
	w.audited(`msg="job redriven"`, "outcome=unknown", "job_id="+id)
}

// deafLine carries out each call and loses the reply.
type deafLine struct{ testforebay.Line }

var errDeaf = errors.New("the reply was lost")

func (l deafLine) Retune(ctx context.Context, t leaky.Tuning) error {
	return errors.Join(l.Line.Retune(ctx, t), errDeaf)
}

func (l deafLine) Cancel(ctx context.Context, id string) (leaky.CancelOutcome, error) {
	_, err := l.Line.Cancel(ctx, id)
	return "", errors.Join(err, errDeaf)
}

func (l deafLine) Redrive(ctx context.Context, id string) (leaky.Outcome, error) {
	_, err := l.Line.Redrive(ctx, id)
	return "", errors.Join(err, errDeaf)
}

func (l deafLine) RedriveAll(ctx context.Context, f leaky.FailedFilter,
	max int) (leaky.RedriveResult, error) {
	done, err := l.Line.RedriveAll(ctx, f, max)
	return done, errors.Join(err, errDeaf)
}

// Case C16, and C120 for the API's own fields.
func TestTuningThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for body, pointers := range map[string]string{
		`{"rate":"0/s"}`: "#/rate", `{"rate":"-1/s"}`: "#/rate", `{"rate":"5"}`: "#/rate",
		`{"rate":5}`: "#/rate", `{"rate":""}`: "#/rate",
		`{"rate":"NaN/s"}`: "#/rate", `{"rate":"1e400/s"}`: "#/rate", `{"rate":null}`: "#/rate",
		`{"rate":"` + strings.Repeat("1", 40) + `/s"}`: "#/rate",
		`{"burst":0}`: "#/burst", `{"burst":-1}`: "#/burst", `{"burst":1.5}`: "#/burst",
		`{"burst":"2"}`: "#/burst", `{"burst":null}`: "#/burst",
		`{"concurrency":0}`: "#/concurrency", `{"concurrency":1e18}`: "#/concurrency",
		`{"concurrency":10001}`: "#/concurrency", `{"burst":10001}`: "#/burst",
		`{"capacity":0}`: "#/capacity", `{"capacity":10000001}`: "#/capacity",
		`{"paused":"true"}`: "#/paused", `{"paused":1}`: "#/paused",
		`{"feedback":true}`: "#/feedback", `{"feedback":"maybe"}`: "#/feedback",
		`{"feedback":null}`: "#/feedback", `{"pause":true}`: "#/pause",
		`{"rate":"0/s","burst":0,"x":1}`: "#/rate #/burst #/x",
		`{"burst":2,"expires_in":"30"}`:  "#/expires_in", `{"burst":2,"expires_in":30}`: "#/expires_in",
		`{"burst":2,"expires_in":"999ms"}`:   "#/expires_in",
		`{"burst":2,"expires_in":"31d"}`:     "#/expires_in",
		`{"burst":2,"expires_in":"-1m"}`:     "#/expires_in",
		`{"burst":2,"expires_in":null}`:      "#/expires_in",
		`{"paused":false,"expires_in":"1m"}`: "#/expires_in",
		`{"burst":2,"reason":""}`:            "#/reason", `{"burst":2,"reason":5}`: "#/reason",
		`{"burst":2,"reason":"a\nb"}`: "#/reason", `{"burst":2,"reason":"\u001b[2J"}`: "#/reason",
		`{"burst":2,"reason":"\u202e"}`:                           "#/reason",
		`{"burst":2,"reason":"` + strings.Repeat("ü", 201) + `"}`: "#/reason",
	} {
		p := w.Problem(w.tune(body), http.StatusUnprocessableEntity, api.CodeInvalidFields)
		var got []string
		for _, e := range p.Errors {
			got = append(got, e.Pointer)
		}
		if strings.Join(got, " ") != pointers {
			t.Errorf("%s: %v, want %s", body, p.Errors, pointers)
		}
	}
	for _, body := range []string{`{}`, `[]`, `{"reason":"x"}`, `{"expires_in":"1m"}`,
		`{"burst":1`, `{"burst":1,"burst":2}`, " "} {
		w.Problem(w.tune(body), http.StatusBadRequest, api.CodeInvalidRequest)
	}
	w.Problem(w.tune(`{"burst":1}`, field("Content-Type", "text/plain")),
		http.StatusUnsupportedMediaType, api.CodeMediaType)
	w.Problem(w.tune(`{"rate":"`+strings.Repeat("1", 5000)+`"}`), http.StatusRequestEntityTooLarge,
		api.CodeTooLarge)
	w.Problem(w.Call("PATCH", w.Admin+"/admin/v1/backends/"+w.Backend+"?dry_run=true",
		`{"burst":2}`), http.StatusBadRequest, api.CodeInvalidRequest)
	w.Problem(w.Call("PATCH", w.Admin+"/admin/v1/backends/nope", `{"burst":1}`),
		http.StatusNotFound, api.CodeUnknownBackend)
	w.Problem(w.Call("GET", w.Admin+"/admin/v1/backends/nope", ""), http.StatusNotFound,
		api.CodeUnknownBackend)
	if b := w.backendNow(); b.TunedBy != "" {
		t.Errorf("something was tuned: %+v", b)
	}
	w.Want(w.tune(`{"rate":"unlimited"}`), 200)
}

func TestBackendsAreListedWithTheirLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.Pause()
	for range 3 {
		w.Submit(w.Plain, `1`, key(keyA))
	}
	var list api.Backends
	strictly(t, "backends", w.Want(w.Call("GET", w.Admin+"/admin/v1/backends", ""), 200).Text,
		&list)
	if len(list.Backends) != 1 {
		t.Fatalf("%d backends", len(list.Backends))
	}
	b := list.Backends[0]
	if b.Name != w.Backend || b.Waiting != 3 || b.Outcomes.Accepted != 3 || b.InFlight != 0 ||
		!b.Paused || b.WaitingOn != "paused" || b.OldestWaitSeconds <= 0 {
		t.Errorf("backend = %+v", b)
	}
}

func TestTheAdminTokenIsRequiredWhereThereIsOne(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	w := newWorld(t, func(s *setup) { s.Token = token })
	backend, job := "/admin/v1/backends/"+w.Backend, "/admin/v1/jobs/"+jobs.NewID(w.Backend)
	callers := 0
	for call, status := range map[string]int{"GET /admin/v1/backends": 200, "GET " + backend: 200,
		"DELETE " + backend + "/override": 200, "GET /metrics": 200,
		"GET " + backend + "/books": 200, "POST " + backend + "/redrive": 200,
		"GET /admin/v1/jobs": 200, "GET " + job: 404, "DELETE " + job: 404,
		"POST " + job + "/redrive": 404} {
		method, path, _ := strings.Cut(call, " ")
		for _, wrong := range []string{"", "Bearer", "Bearer 0123456789abcdeF",
			"Bearer " + token + "0", "Basic " + token, token} {
			callers++ // wrong tokens of one address are braked
			a := w.Call(method, w.Admin+path, "", field("Authorization", wrong),
				from(fmt.Sprint("192.0.2.", callers)))
			w.Problem(a, http.StatusUnauthorized, api.CodeInvalidCredentials)
			if a.Header.Get("WWW-Authenticate") != `Bearer realm="forebay-admin"` {
				t.Errorf("%v", a.Header)
			}
		}
		w.Want(w.Call(method, w.Admin+path, "", field("Authorization", "bearer "+token),
			field("Host", "forebay.internal")), status)
	}
	w.Problem(w.tune(`{"burst":2}`), http.StatusUnauthorized, api.CodeInvalidCredentials)
	w.Want(w.Call("GET", w.Admin+"/livez", ""), 200)
	w.Want(w.Call("GET", w.Admin+"/readyz", ""), 200)
}

func TestNoPageOfAnotherSiteReachesTheAdminAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	host := strings.TrimPrefix(w.Admin, "http://")
	id := w.Job(w.Submit(w.Plain, `1`, key(keyA))).ID
	for name, fields := range map[string][][2]string{
		"cross-site":          {field("Sec-Fetch-Site", "cross-site")},
		"same site":           {field("Sec-Fetch-Site", "same-site")},
		"another origin":      {field("Origin", "https://evil.example")},
		"null origin":         {field("Origin", "null")},
		"a name that rebinds": {field("Host", "evil.example:8081")},
	} {
		t.Run(name, func(t *testing.T) {
			w.Problem(w.tune(`{"burst":2}`, fields...), http.StatusForbidden, api.CodeCrossSite)
			w.Problem(w.Call("POST", w.Admin+"/admin/v1/backends/"+w.Backend+"/redrive", "",
				fields...), http.StatusForbidden, api.CodeCrossSite)
			w.Problem(w.Call("POST", w.Admin+"/admin/v1/jobs/"+id+"/redrive", "", fields...),
				http.StatusForbidden, api.CodeCrossSite)
			w.Problem(w.Call("DELETE", w.Admin+"/admin/v1/jobs/"+id, "", fields...),
				http.StatusForbidden, api.CodeCrossSite)
		})
	}
	for _, path := range []string{"backends", "backends/" + w.Backend + "/books", "jobs",
		"jobs/" + id} {
		w.Problem(w.Call("GET", w.Admin+"/admin/v1/"+path, "", field("Host", "evil.example")),
			http.StatusForbidden, api.CodeCrossSite)
	}
	for _, good := range [][2]string{field("Origin", "http://"+host),
		field("Sec-Fetch-Site", "same-origin"), field("Host", "localhost:8081"),
		field("Host", "[::1]:8081"), field("Host", "[::1]")} {
		w.Want(w.tune(`{"burst":2}`, good), 200)
	}
}

func TestWhoTunesIsAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for given, want := range map[string]string{"maria": "maria", "ops team": "ops team",
		strings.Repeat("x", 65): "127.0.0.1", "ü": "127.0.0.1"} {
		if b := w.backendOf(w.Want(w.tune(`{"burst":2}`, field("Forebay-Operator", given)),
			200)); b.TunedBy != want {
			t.Errorf("%q: tuned by %q, want %q", given, b.TunedBy, want)
		}
	}
}

// A change may say why it is made and when it ends. The setting shows both, and so does the log.
func TestAnOverrideSaysWhyAndUntilWhen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	maria := field("Forebay-Operator", "maria")
	b := w.backendOf(w.Want(w.tune(`{"rate":"6/m","paused":true,"reason":"the disk is replaced",`+
		`"expires_in":"30m"}`, maria), 200))
	for name, note := range map[string]api.OverrideNote{"rate": b.Rate.OverrideNote,
		"paused": *b.Pause} {
		if note.SetBy != "maria" || note.Reason != "the disk is replaced" ||
			note.ExpiresAt == nil || !note.SetAt.Equal(b.TunedAt.Time) ||
			note.ExpiresAt.Sub(note.SetAt.Time) != 30*time.Minute {
			t.Errorf("%s: %+v", name, note)
		}
	}
	if b.TunedReason != "the disk is replaced" || b.Burst.OverrideNote != (api.OverrideNote{}) {
		t.Errorf("%+v", b)
	}
	w.audited(`msg="backend tuned"`, "by=maria", `paused="false → true" expires_in=30m `+
		`reason="the disk is replaced"`+"\n")
	// Another change leaves both as they are, unless it is of the same setting.
	b = w.backendOf(w.Want(w.tune(`{"rate":"7/m","burst":2}`, field("Forebay-Operator", "jo")),
		200))
	if n := b.Rate.OverrideNote; n.SetBy != "jo" || n.Reason != "" || n.ExpiresAt != nil {
		t.Errorf("rate: %+v", n)
	}
	if b.Pause == nil || b.Pause.SetBy != "maria" || b.Pause.ExpiresAt == nil ||
		b.TunedReason != "" {
		t.Errorf("pause: %+v", b.Pause)
	}
	b = w.backendOf(w.Want(w.tune(`{"paused":false,"reason":"done"}`), 200))
	if b.Pause != nil || b.TunedReason != "done" {
		t.Errorf("resumed: %+v", b)
	}
}

// What was set for a second is over after it, on the store's clock.
func TestAnOverrideIsOverAtItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.Want(w.tune(`{"rate":"1/h","paused":true,"expires_in":"1s"}`), 200)
	tag := a.Header.Get("ETag")
	if !w.backendOf(a).Paused {
		t.Fatalf("not paused: %s", a.Text)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b := w.backendNow()
		if !b.Paused && b.Rate.Override == nil && b.Rate.Effective == b.Rate.Configured &&
			b.Rate.ExpiresAt == nil && b.Pause == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("still %+v", b)
		}
	}
	// Who has read the pause would change something else now.
	p := w.Problem(w.tune(`{"paused":false}`, field("If-Match", tag)),
		http.StatusPreconditionFailed, api.CodeSettingsChanged)
	if p.Backend == nil || p.Backend.Paused {
		t.Errorf("%+v", p)
	}
}

// An operator changes what it has read, and nothing that someone else has turned meanwhile.
func TestAChangeIsMadeToTheSettingsThatWereRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.Admin + "/admin/v1/backends/" + w.Backend
	read := func() string { return w.Want(w.Call("GET", path, ""), 200).Header.Get("ETag") }
	first := read()
	w.Submit(w.Plain, `1`, key(keyA))
	if got := read(); got != first {
		t.Errorf("a job changes the tag of the settings: %s, then %s", first, got)
	}
	done := w.Want(w.tune(`{"rate":"6/m"}`, field("If-Match", first),
		field("Forebay-Operator", "kim")), 200)
	second := done.Header.Get("ETag")
	if second == first || second != read() {
		t.Errorf("the change's tag is %s, before %s, now %s", second, first, read())
	}
	a := w.tune(`{"rate":"7/m"}`, field("If-Match", first), field("Forebay-Operator", "jo"))
	p := w.Problem(a, http.StatusPreconditionFailed, api.CodeSettingsChanged)
	if !strings.Contains(p.Detail, "kim changed them last") ||
		!strings.Contains(p.Detail, "rate 6/m") || p.Backend == nil || p.Backend.Rate.Effective != "6/m" || p.Backend.TunedBy != "kim" ||
		a.Header.Get("ETag") != second {
		t.Errorf("%+v with tag %s", p, a.Header.Get("ETag"))
	}
	w.Problem(w.Call("DELETE", path+"/override", "", field("If-Match", first)),
		http.StatusPreconditionFailed, api.CodeSettingsChanged)
	if n := strings.Count(w.Logs.String(), "audit=true"); n != 1 {
		t.Errorf("%d lines of audit for one change", n)
	}
	for _, tags := range []string{"*", "%s", `"x", %s`} {
		tags = strings.ReplaceAll(tags, "%s", second)
		second = w.Want(w.tune(`{"rate":"8/m"}`, field("If-Match", tags)), 200).Header.Get("ETag")
	}
	// A weak tag never matches strongly.
	w.Problem(w.tune(`{"rate":"9/m"}`, field("If-Match", "W/"+second)),
		http.StatusPreconditionFailed, api.CodeSettingsChanged)
	for _, malformed := range []string{"", ",", "x", `"x`, "*, " + second, `"a b"`, `"a"b"`} {
		w.Problem(w.tune(`{"rate":"9/m"}`, field("If-Match", malformed)), http.StatusBadRequest,
			api.CodeInvalidRequest)
	}
	w.Want(w.Call("DELETE", path+"/override", "", field("If-Match", second)), 200)
}

// Of operators who change the same settings at the same moment, one succeeds.
func TestOfTwoOperatorsAtOnceOneLearnsOfTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	path := w.Admin + "/admin/v1/backends/" + w.Backend
	tag := w.Want(w.Call("GET", path, ""), 200).Header.Get("ETag")
	var all sync.WaitGroup
	statuses := make([]int, 4)
	for i := range statuses {
		all.Go(func() {
			body := fmt.Sprintf(`{"burst":%d}`, i+2)
			statuses[i] = w.tune(body, field("If-Match", tag)).StatusCode
		})
	}
	all.Wait()
	slices.Sort(statuses)
	if want := []int{200, 412, 412, 412}; !slices.Equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
}
