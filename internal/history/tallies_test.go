package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// process returns the tallies of one process of some backends. All samples have started calls, and
// looks counts them.
func process(rdb redis.UniversalClient, name string, looks *atomic.Int64,
	backends ...string) *Tallies {
	return New(Config{Redis: rdb, Process: name, Backends: backends, Log: quiet,
		Sample: func(context.Context, string) (Sample, error) {
			return Sample{Waiting: 7, Capacity: 1000, Configured: 8, Effective: 2.97,
				Cause: "throttled", Totals: Totals{Started: 40 * looks.Add(1)}}, nil
		}})
}

// around reads the time around the buckets of now.
func around(t *testing.T, tallies *Tallies, backend string, before time.Duration) (points []Point) {
	t.Helper()
	tallies.reading = newCache(1) // as if nothing was read yet
	now := tallies.Now().Truncate(5 * time.Second)
	points, err := tallies.Read(t.Context(), backend,
		Span{now.Add(-before), now.Add(10 * time.Second), 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// sum adds up the decisions of some points.
func sum(points []Point) (s Point) {
	s.Rejected = map[string]int64{}
	for _, p := range points {
		s.Accepted += p.Accepted
		s.Fresh += p.Fresh
		s.Degraded += p.Degraded
		for reason, n := range p.Rejected {
			s.Rejected[reason] += n
		}
	}
	return s
}

// What each process has seen alone is added up; what all see alike is not. It is the same on an
// embedded Redis.
func TestDecisionsAddUpAndSamplesDoNot(t *testing.T) {
	t.Parallel()
	for about, rdb := range map[string]redis.UniversalClient{
		"Redis": redistest.Start(t).Client(t), "embedded": redistest.Miniredis(t)} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			var looks atomic.Int64
			a := process(rdb, "api a", &looks, "reports")
			b := process(rdb, "api b", &looks, "reports")
			for _, p := range []*Tallies{a, b} {
				p.Counter("reports", Accepted).Add(3)
				p.Counter("reports", Fresh).Add(1)
				p.Counter("reports", Degraded).Add(2)
				p.Counter("reports", Rejected("per-minute")).Add(5)
				p.Counter("elsewhere", Accepted).Add(100)
			}
			b.Counter("reports", Rejected("line_full")).Add(1)
			for range 2 { // the second time there is nothing new
				a.Flush(t.Context())
				b.Flush(t.Context())
			}
			points := around(t, b, "reports", time.Minute)
			got := sum(points)
			if got.Accepted != 6 || got.Fresh != 2 || got.Degraded != 4 ||
				got.Rejected["per-minute"] != 10 || got.Rejected["line_full"] != 1 {
				t.Errorf("got %+v", got)
			}
			lines := int64(0)
			for _, p := range points {
				if p.Line == nil {
					continue
				}
				lines++
				if p.Line.Waiting != 7 || p.Line.Capacity != 1000 || p.Line.Configured != 8 ||
					p.Line.Cause != "throttled" || p.Line.Started > 40 {
					t.Errorf("the line: %+v", p.Line)
				}
			}
			if lines == 0 || lines != looks.Load() {
				t.Errorf("%d samples of %d looks", lines, looks.Load())
			}
			keys, err := rdb.Keys(t.Context(), "fb:{history}:*").Result()
			if err != nil || len(keys) < 5 {
				t.Errorf("keys %q, %v", keys, err)
			}
			for _, key := range keys {
				if ttl := rdb.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > 51*time.Hour {
					t.Errorf("%s has TTL %v", key, ttl)
				}
			}
		})
	}
}

// What a process counts while it can't reach Redis is not lost: it is added later, to the buckets
// in which it was, once.
func TestCountsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	var looks atomic.Int64
	p := process(rdb, "api a", &looks, "b")
	p.Flush(t.Context())
	server.Kill()
	bucket := fine.at(fine.bucket(p.Now())).Add(middle)
	for i := range 3 {
		p.Counter("b", Accepted).Add(int64(i + 1))
		p.drain(bucket.Add(-time.Duration(i) * time.Minute))
		p.Flush(t.Context())
	}
	server.Restart()
	p.Flush(t.Context())
	p.Flush(t.Context())
	if len(p.pending) > 0 || len(p.unsure) > 0 {
		t.Fatalf("not sent: %v %v", p.unsure, p.pending)
	}
	found := map[int64]int64{}
	for _, point := range around(t, p, "b", 5*time.Minute) {
		if point.Accepted > 0 {
			found[fine.bucket(bucket)-fine.bucket(point.At)] += point.Accepted
		}
	}
	if fmt.Sprint(found) != "map[0:1 12:2 24:3]" {
		t.Errorf("buckets ago → accepted: %v", found)
	}
}

// A call whose reply was lost is made again, and adds nothing if it had arrived.
func TestARepeatedCallAddsNothing(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	p := process(redistest.Start(t).Client(t), "api a", &looks, "b")
	r := row{backend: "b", at: time.Now(), add: map[string]int64{Accepted: 3}}
	p.number = 1
	for range 3 {
		p.unsure = []row{r}
		if _, err := p.call(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if got := sum(around(t, p, "b", time.Minute)); got.Accepted != 3 {
		t.Errorf("accepted %d, want 3", got.Accepted)
	}
}

// However long Redis is away, a process keeps a bounded number of rows, and all counts.
func TestWhatIsKeptForLaterIsBounded(t *testing.T) {
	t.Parallel()
	p := process(nil, "api a", nil, "b", "c")
	for i := range 1000 {
		p.Counter("b", Accepted).Add(1)
		p.Counter("c", Rejected("x")).Add(2)
		p.drain(four.Add(time.Duration(i) * 5 * time.Second))
	}
	total := map[string]int64{}
	for _, r := range p.pending {
		for name, n := range r.add {
			total[r.backend+" "+name] += n
		}
	}
	if len(p.pending) != 2*keptBuckets || total["b accepted"] != 1000 ||
		total["c rejected:x"] != 2000 {
		t.Errorf("%d rows with %v", len(p.pending), total)
	}
}

// 48 h of a backend with everything that can be counted, and with more reasons than there is room
// for, take 400 KB at most, and no refusal is left out.
func TestTwoDaysTake400KB(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	var looks atomic.Int64
	p := process(rdb, "api a", &looks, "b")
	now := p.Now()
	full := Sample{Waiting: top, Capacity: top, OldestWait: time.Hour, Configured: 1. / 3,
		Override: 1. / 7, Effective: 1. / 9, Paused: true, Probing: true, Cause: "unreachable",
		Totals: Totals{top, top, top, top, top, top}}
	var rows []row
	for ago := 48*time.Hour - time.Minute; ago > 0; {
		add := map[string]int64{Accepted: 1000, Fresh: 1000, Degraded: 1000}
		for i := range 12 {
			add[Rejected(fmt.Sprintf("a-limit-with-a-long-name-%d", i))] = 1
		}
		rows = append(rows, row{backend: "b", at: now.Add(-ago), add: add, set: full.cells()})
		if ago > 2*time.Hour {
			ago -= time.Minute
		} else {
			ago -= 5 * time.Second
		}
	}
	for len(rows) > 0 {
		n := min(len(rows), 100)
		p.unsure, rows = rows[:n], rows[n:]
		p.number++
		if _, err := p.call(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	size, columns := int64(0), int64(0)
	keys := rdb.Keys(t.Context(), "fb:{history}:*:b").Val()
	for _, key := range keys {
		size += rdb.MemoryUsage(t.Context(), key, 0).Val()
		columns = max(columns, rdb.HLen(t.Context(), key).Val())
	}
	t.Logf("%d chunks of up to %d counts take %d bytes", len(keys), columns, size)
	if size > 400_000 || len(keys) < 36 || columns != 23 {
		t.Errorf("%d chunks of up to %d counts take %d bytes", len(keys), columns, size)
	}
	hour := now.Truncate(time.Hour)
	points, err := p.Read(t.Context(), "b",
		Span{hour.Add(-47 * time.Hour), hour.Add(-4 * time.Hour), time.Hour})
	if err != nil || len(points) != 43 {
		t.Fatalf("%d points, %v", len(points), err)
	}
	for _, point := range points {
		n := int64(0)
		for _, by := range point.Rejected {
			n += by
		}
		if n != 60*12 || len(point.Rejected) != 7 || point.Accepted != 60_000 ||
			point.Line.Waiting != top {
			t.Fatalf("an hour has %+v", point)
		}
	}
}

// counting counts the commands that a client sends.
type counting struct{ sent atomic.Int64 }

func (c *counting) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.sent.Add(1); return next(ctx, cmd) }
}
func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		c.sent.Add(int64(len(all)))
		return next(ctx, all)
	}
}

// A process sends less than a command a second for its tallies, and 50 readers of all of them, and
// of events, cost less than five a second together.
func TestTalliesAndTheirReadersAreCheap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	commands, rdb := new(counting), server.Client(t)
	rdb.AddHook(commands)
	var looks atomic.Int64
	p := process(rdb, "api a", &looks, "b", "c")
	p.Flush(t.Context()) // the script itself is sent once
	commands.sent.Store(0)
	looks.Store(0)
	const flushes = 12 // in a minute
	for range flushes {
		rdb.Del(t.Context(), keySampler) // as if each was of another bucket
		for _, backend := range []string{"b", "c"} {
			p.Counter(backend, Accepted).Add(1)
			p.Counter(backend, Rejected("x")).Add(1)
		}
		p.Flush(t.Context())
	}
	if sent := commands.sent.Load() - flushes + looks.Load(); sent > 60 {
		t.Errorf("%d commands in a minute", sent)
	}

	events := NewEvents(rdb, p.Now, quiet)
	read := func() error {
		span, err := Fit(p.Now(), time.Time{}, time.Time{}, 0, 2)
		for _, backend := range []string{"b", "c"} {
			_, failed := p.Read(t.Context(), backend, span)
			err = errors.Join(err, failed)
		}
		_, _, failed := events.List(t.Context(), Filter{Limit: 100})
		return errors.Join(err, failed)
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	commands.sent.Store(0)
	began, readings := time.Now(), atomic.Int64{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for time.Since(began) < 4*time.Second {
				if err := read(); err != nil {
					t.Error(err)
					return
				}
				readings.Add(1)
				time.Sleep(100 * time.Millisecond) // one reader's pace
			}
		})
	}
	all.Wait()
	// One more reading may begin within the time.
	sent, most := commands.sent.Load(), 5*(time.Since(began).Seconds()+1)
	if float64(sent) > most || readings.Load() < 50 {
		t.Errorf("%d readings took %d commands in %v", readings.Load(), sent, time.Since(began))
	}
}

// A chunk is remembered for good only if it was read after it could change last.
func TestOnlyWhatIsOverIsRememberedForLong(t *testing.T) {
	t.Parallel()
	c := newCache(1)
	for _, x := range []struct {
		age, ended time.Duration
		holds      bool
	}{
		{500 * time.Millisecond, -time.Minute, true}, {2 * time.Second, -time.Minute, false},
		{2 * time.Second, 5 * time.Second, false}, {2 * time.Second, 11 * time.Second, false},
		{2 * time.Second, 13 * time.Second, true}, {31 * time.Second, 5 * time.Minute, false},
		{29 * time.Second, coldAfter + time.Second, true},
		{31 * time.Second, coldAfter + time.Second, false},
		{time.Hour, coldAfter + 2*time.Hour, true},
	} {
		if got := c.holds(four.Add(-x.age), four, x.ended); got != x.holds {
			t.Errorf("read %v ago, ended %v ago: %v", x.age, x.ended, got)
		}
	}
	if got := newCache(10).fresh; got != 3*time.Second {
		t.Errorf("with 10 backends a chunk is remembered for %v", got)
	}
}

// A process is among the events when it comes, when it goes, and when it is gone without a word.
func TestProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	var looks atomic.Int64
	a, b := process(rdb, "api a", &looks), process(rdb, "worker b", &looks)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	events := NewEvents(rdb, b.Now, quiet)
	eventually(t, "api a has begun", events, func(all []string) bool { return len(all) == 1 })
	stop()
	running.Wait()
	b.Flush(t.Context())
	b.Flush(t.Context())
	rdb.HSet(t.Context(), keyProcesses, "api gone 12345678", "9 1 1")
	b.Flush(t.Context()) // it has begun just now: perhaps Redis was away, and the others return
	now := b.Now().UnixMicro()
	rdb.HSet(t.Context(), keyProcesses, b.process, fmt.Sprint("0 ", now, " ", now-40e6))
	b.Flush(t.Context())
	eventually(t, "all", events, func(all []string) bool { return len(all) == 4 })
	want := "process_started api a, process_stopped api a, process_started worker b, " +
		"process_lost api gone"
	if got := strings.Join(types(t, events), ", "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// types are the events' types and authors.
func types(t *testing.T, e *Events) (all []string) {
	t.Helper()
	e.lookAnew()
	page, _, err := e.List(t.Context(), Filter{Limit: MaxEvents})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range page {
		all = append(all, strings.TrimSpace(event.Type+" "+event.By))
	}
	return all
}

// eventually waits until the events are as they should be.
func eventually(t *testing.T, what string, e *Events, is func(all []string) bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !is(types(t, e)) {
		if time.Now().After(end) {
			t.Fatalf("%s: there are only %q", what, types(t, e))
		}
		time.Sleep(10 * time.Millisecond)
	}
}
