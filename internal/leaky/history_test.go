package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/units"
)

// Whatever happens to a line, in any order, each script does and returns the same as the model.
func TestLuaAndOracleAgree(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{"redis": ownServer(t),
		"miniredis": redistest.Miniredis(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) { runHistory(t, rt, rdb) })
		})
	}
}

// history is a line and its model under the same random calls.
type history struct {
	*rapid.T
	line    *leaky.Line
	model   *model
	rdb     redis.UniversalClient
	ids     []string
	tickets []leaky.Ticket
	serial  int
	version string   // of the settings, some time ago
	tokens  []string // of previews
}

var rates = []string{"unlimited", "1500/s", "100/s", "7/s", "1/s", "0.2/s", "7/m", "1/h"}

func runHistory(t *testing.T, rt *rapid.T, rdb redis.UniversalClient) {
	s := leaky.Settings{
		Backend: redistest.Name(t, "h"),
		Drain: leaky.Drain{
			Rate:        drawRate(rt),
			Burst:       rapid.SampledFrom([]int{1, 1, 2, 5}).Draw(rt, "burst"),
			Concurrency: rapid.IntRange(1, 6).Draw(rt, "concurrency"),
		},
		Room: leaky.Room{
			Capacity:    rapid.IntRange(1, 30).Draw(rt, "capacity"),
			MaxWait:     rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Minute, 24 * time.Hour}).Draw(rt, "max_wait"),
			ClientShare: rapid.SampledFrom([]float64{1, 1, 0.5, 0.1}).Draw(rt, "share"),
		},
		Attempts:   rapid.IntRange(1, 3).Draw(rt, "attempts"),
		Feedback:   rapid.IntRange(0, 4).Draw(rt, "feedback") > 0,
		KeepFailed: rapid.SampledFrom([]time.Duration{30 * 24 * time.Hour, time.Hour, 0}).Draw(rt, "keep_failed"),
	}
	h := &history{T: rt, model: newModel(s), rdb: rdb}
	// Histories are in the past, so that CheckBooks, on Redis's own clock, finds no lease that ends
	// too late.
	h.model.now = float64(time.Now().Add(-60 * 24 * time.Hour).UnixMicro())
	h.model.most = rapid.SampledFrom([]int{1000, 3, 1}).Draw(rt, "subscriptions")
	h.model.each = rapid.SampledFrom([]int{100, 2, 1}).Draw(rt, "subscriptions of one")
	h.model.bytes = func(o leaky.Offer) int64 { return h.bytes(o) }
	h.model.limited = newLimited(t, rt, h.model)
	h.line = leaky.New(rdb, s).Limited(limits.Script{}).At(func() int64 {
		return int64(h.model.now)
	}).MaxSubscriptions(h.model.most, h.model.each)
	rt.Repeat(map[string]func(*rapid.T){
		"offer":   func(*rapid.T) { h.offer() },
		"release": func(*rapid.T) { h.release() },
		"work":    func(*rapid.T) { h.work() },
		"start":   func(*rapid.T) { h.start(h.ticket(), h.owner()) },
		"settle":  func(*rapid.T) { h.settle(h.ticket(), h.owner()) },
		"renew":   func(*rapid.T) { h.renew() },
		"cancel":  func(*rapid.T) { h.cancel() },
		"look":    func(*rapid.T) { h.look() },
		"tune":    func(*rapid.T) { h.tune() },
		"pass":    func(*rapid.T) { h.pass() },
		"leap":    func(*rapid.T) { h.leap() },
		"status":  func(*rapid.T) { h.status() },
		"dues":    func(*rapid.T) { h.dues() },
		"explain": func(*rapid.T) { h.explain() },
		"keys":    func(*rapid.T) { h.compareKeys() },

		"part":  func(*rapid.T) { h.part(h.ticket(), h.owner()) },
		"purge": func(*rapid.T) { h.purge() },
		"mine":  func(*rapid.T) { h.mine() },

		"redrive":   func(*rapid.T) { h.redrive() },
		"preview":   func(*rapid.T) { h.preview() },
		"previewed": func(*rapid.T) { h.redrivePreviewed() },
		"list":      func(*rapid.T) { h.list() },
		"failed":    func(*rapid.T) { h.failed() },
		"books":     func(*rapid.T) { h.books() },
		"reconcile": func(*rapid.T) { h.reconcile() },
	})
	h.compareKeys()
	for _, id := range h.ids {
		h.lookAt(id)
	}
	redistest.CheckBooks(t, rdb, s.Backend)
	if t.Failed() {
		rt.FailNow()
	}
}

func drawRate(rt *rapid.T) leaky.Rate {
	r, err := leaky.ParseRate(rapid.SampledFrom(rates).Draw(rt, "rate"))
	if err != nil {
		rt.Fatal(err)
	}
	return r
}

// agree fails the history if the answers of the line and the model differ.
func (h *history) agree(what string, got, want any, err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%s: %v", what, err)
	}
	if !reflect.DeepEqual(got, want) {
		h.Fatalf("%s:\nthe line says  %+v\nthe model says %+v", what, got, want)
	}
}

func (h *history) owner() string {
	return rapid.SampledFrom([]string{"w1", "w2"}).Draw(h.T, "owner")
}

// ticket draws one of the granted tickets, the newest most likely; none before the first grant.
func (h *history) ticket() leaky.Ticket {
	if len(h.tickets) == 0 {
		h.Skip("no ticket yet")
	}
	return h.tickets[len(h.tickets)-1-rapid.IntRange(0, min(len(h.tickets), 8)-1).Draw(h.T,
		"ticket")]
}

func (h *history) id() string {
	if len(h.ids) == 0 {
		h.Skip("no job yet")
	}
	return rapid.SampledFrom(h.ids).Draw(h.T, "job")
}

func (h *history) offer() {
	var batch []leaky.Offer
	for range rapid.IntRange(1, 6).Draw(h.T, "jobs") {
		batch = append(batch, h.draw())
	}
	got, err := h.line.OfferAll(context.Background(), batch)
	h.agree(fmt.Sprintf("offer of %+v", batch), got, h.model.offer(batch, h.inner), err)
	h.compareLimits(batch, got)
	for _, o := range batch {
		h.know(o.Job.ID)
	}
}

func (h *history) draw() leaky.Offer {
	priority := rapid.SampledFrom([]jobs.Priority{jobs.Normal, jobs.High, jobs.Low}).Draw(h.T,
		"priority")
	h.serial++
	name := strconv.Itoa(h.serial)
	if rapid.IntRange(0, 9).Draw(h.T, "known") == 0 {
		name = strconv.Itoa(rapid.IntRange(1, h.serial).Draw(h.T, "again"))
	}
	client := rapid.SampledFrom([]string{"a", "b", "c", "ip:192.0.2.1"}).Draw(h.T, "client")
	o := h.withJoin(leaky.Offer{
		Job: jobs.Job{ID: jobs.DeriveID(h.line.Settings().Backend, client, "report", name),
			Operation: "report",
			Client:    client, Tier: "free", Priority: priority, Payload: []byte("\x00 1\n")},
		Weight: rapid.SampledFrom([]float64{1, 3}).Draw(h.T, "tier") * priority.Weight(),
		StartWithin: rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Millisecond, time.Second,
			time.Minute, 2 * time.Hour}).Draw(h.T, "start_within"),
		MaxAge: rapid.SampledFrom([]time.Duration{24 * time.Hour, time.Hour, time.Minute,
			time.Second}).Draw(h.T, "max_age"),
		Keep: time.Hour,
		MaxStored: rapid.SampledFrom([]int64{0, 0, 1 << 30, 1500, 300, 100}).Draw(h.T,
			"max_stored"),
	})
	if len(h.ids) > 0 && !o.Refresh && rapid.IntRange(0, 5).Draw(h.T, "others") == 0 {
		o.Others = []string{jobs.NewID("another"), h.id()}
	}
	return h.model.bring(h.T, o)
}

func (h *history) release() []leaky.Ticket {
	got, err := h.line.Release(context.Background())
	want := h.model.release()
	h.agree("release", got, want, err)
	h.tickets = append(h.tickets, want.Tickets...)
	return want.Tickets
}

// work does what a worker does when nothing goes wrong.
func (h *history) work() {
	for _, t := range h.release() {
		h.start(t, "w1")
		if rapid.IntRange(0, 3).Draw(h.T, "for one alone") == 0 {
			h.part(t, "w1")
		}
		if rapid.Bool().Draw(h.T, "ends") {
			h.settle(t, "w1")
		}
	}
}

func (h *history) start(t leaky.Ticket, owner string) {
	got, err := h.line.Start(context.Background(), t, owner)
	want := h.model.start(t, owner)
	if want.Outcome == leaky.Go {
		want.Job = h.model.jobs[t.ID].job
		want.Job.Payload = []byte("\x00 1\n")
		want.Job.CreatedAt = when(h.model.jobs[t.ID].accepted)
	}
	h.agree("start", got, want, err)
}

func (h *history) settle(t leaky.Ticket, owner string) {
	s := leaky.Settlement{Ticket: t, Owner: owner,
		To: rapid.SampledFrom([]jobs.State{jobs.Succeeded, jobs.Delayed, jobs.Waiting,
			jobs.Failed, jobs.Canceled, jobs.Expired}).Draw(h.T, "to"),
		Delay: rapid.SampledFrom([]time.Duration{0, 700 * time.Millisecond, time.Minute}).Draw(h.T,
			"delay"),
		Took: rapid.SampledFrom([]time.Duration{0, 3 * time.Millisecond,
			2 * time.Second}).Draw(h.T, "took")}
	if s.To != jobs.Succeeded {
		s.Failure = jobs.Failure{Code: jobs.CodeBackendStatus, Detail: "It said no."}
	}
	s.Sign = rapid.SampledFrom([]leaky.Sign{leaky.NoSign, leaky.Answered, leaky.Throttled,
		leaky.Timeout, leaky.Unreachable}).Draw(h.T, "sign")
	if s.Sign == leaky.Throttled {
		s.Gate = rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second,
			5 * time.Minute}).Draw(h.T, "gate")
	}
	if s.To.Final() {
		s.Result, s.Body = jobs.Meta{Status: 200, ContentType: "text/plain"}, []byte("\r\n\x00")
	}
	got, changed, err := h.line.Settle(context.Background(), s)
	want, wantChanged := h.model.settle(s)
	h.agree(fmt.Sprintf("settle %+v", s), got, want, err)
	h.agree(fmt.Sprintf("feedback of settle %+v", s), changed, wantChanged, err)
}

func (h *history) renew() {
	var tickets []leaky.Ticket
	var want []leaky.Renewal
	owner := h.owner()
	for range rapid.IntRange(1, 3).Draw(h.T, "tickets") {
		tickets = append(tickets, h.ticket())
		want = append(want, h.model.renew(tickets[len(tickets)-1], owner))
	}
	got, err := h.line.Renew(context.Background(), owner, tickets)
	h.agree("renew", got, want, err)
}

func (h *history) cancel() {
	id := h.id()
	got, err := h.line.Cancel(context.Background(), id)
	if !h.model.onRecord(id) {
		if !errors.Is(err, leaky.ErrUnknownJob) {
			h.Fatalf("cancel of a job that was purged: %s, %v", got, err)
		}
		return
	}
	h.agree("cancel", got, h.model.cancel(id), err)
}

func (h *history) look() { h.lookAt(h.id()) }

func (h *history) lookAt(id string) {
	if !h.model.onRecord(id) {
		h.lookAtGone(id)
		return
	}
	got, err := h.line.Look(context.Background(), id)
	h.agree("look", got, h.model.look(id), err)
	unknown := jobs.NewID(h.line.Settings().Backend)
	if _, err := h.line.Look(context.Background(), unknown); !errors.Is(err, leaky.ErrUnknownJob) {
		h.Fatalf("look at a job that never was: %v", err)
	}
}

func (h *history) tune() {
	t := leaky.Tuning{By: "op",
		Reason: rapid.SampledFrom([]string{"", "why, ü"}).Draw(h.T, "reason"),
		For: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 3 * time.Second,
			time.Hour}).Draw(h.T, "lasts"),
		If: rapid.SampledFrom([]string{"", "", h.model.version(), h.version}).Draw(h.T, "if")}
	h.version = h.model.version() // which may be old by the next time
	o := &t.Set
	number := func() *int { n := rapid.IntRange(1, 8).Draw(h.T, "n"); return &n }
	for range rapid.IntRange(1, 2).Draw(h.T, "fields") {
		switch rapid.SampledFrom([]string{"reset", "rate", "burst", "concurrency", "capacity",
			"paused", "feedback"}).Draw(h.T, "field") {
		case "reset":
			t = leaky.Tuning{Reset: true, By: "me", If: t.If}
		case "rate":
			r := drawRate(h.T)
			o.Rate = &r
		case "burst":
			o.Burst = number()
		case "concurrency":
			o.Concurrency = number()
		case "capacity":
			o.Capacity = number()
		case "paused":
			paused := rapid.Bool().Draw(h.T, "paused")
			o.Paused = &paused
		case "feedback":
			feedback := units.Switch(rapid.IntRange(0, 3).Draw(h.T, "on") > 0)
			o.Feedback = &feedback
		}
		if t.Reset {
			t.Set = leaky.Override{}
			break
		}
	}
	want := h.model.tune(t)
	if err := h.line.Retune(context.Background(), t); !errors.Is(err, want) {
		h.Fatalf("tuning %+v: %v, want %v", t, err, want)
	}
}

func (h *history) pass() {
	h.model.now += usec(rapid.SampledFrom([]time.Duration{time.Microsecond, 5 * time.Millisecond,
		12 * time.Millisecond,
		130 * time.Millisecond, time.Second, 3 * time.Second}).Draw(h.T, "time"))
}

// leap steps the clock: over leases and backoffs, or back.
func (h *history) leap() {
	h.model.now += usec(rapid.SampledFrom([]time.Duration{11 * time.Second, time.Hour, -time.Second,
		-time.Hour}).Draw(h.T, "step"))
}

func (h *history) status() {
	got, err := h.line.Status(context.Background())
	got.Recent = leaky.Calls{} // of its own test: TestStatusTellsWhatTheLastCallsWereLike
	h.agree("status", got, h.model.status(), err)
}

// compareKeys compares the line's keys in Redis with the model.
func (h *history) compareKeys() {
	ctx, prefix := context.Background(), jobs.KeyPrefix(h.line.Settings().Backend)
	for name, want := range map[string]zset{"line": h.model.line, "delayed": h.model.delayed,
		"inflight":  h.model.inflight,
		"deadlines": h.model.deadlines, "flows": h.model.flows, "failed": h.model.failed} {
		members, err := h.rdb.ZRangeWithScores(ctx, prefix+name, 0, -1).Result()
		got := zset{}
		for _, m := range members {
			got[m.Member.(string)] = m.Score
		}
		h.agree(name, got, want, err)
	}
	h.compareShared()
	h.compareStores()
	share, err := h.rdb.HGetAll(ctx, prefix+"share").Result()
	want := map[string]string{}
	for client, n := range h.model.share {
		want[client] = strconv.FormatInt(n, 10)
	}
	h.agree("share", share, want, err)
	words, err := h.rdb.HMGet(ctx, prefix+"pace", "cause", "probe").Result()
	wantWords := make([]any, 2)
	for i, word := range []string{string(h.model.cause), h.model.probe} {
		if word != "" {
			wantWords[i] = word
		}
	}
	h.agree("words of pace", words, wantWords, err)
	pace, err := h.rdb.HMGet(ctx, prefix+"pace", "last", "at", "gate", "v", "call", "streak",
		"factor", "cut", "healed").Result()
	got := make([]float64, len(pace))
	for i, field := range pace {
		if text, ok := field.(string); ok {
			got[i], err = strconv.ParseFloat(text, 64)
		}
	}
	h.agree("pace", got, []float64{h.model.last, h.model.at, h.model.gate, h.model.v, h.model.call,
		float64(h.model.streak), h.model.factor, h.model.cut, h.model.healed}, err)
}
