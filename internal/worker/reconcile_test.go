package worker_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// Each kind of repair is logged once, so that later differences in the books can be explained.
func TestAWorkerRepairsKeysThatRedisLost(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	var log lines
	s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	prefix := jobs.KeyPrefix(s.settings.Backend)
	far := float64(time.Now().Add(time.Hour).UnixMicro())
	for _, id := range []string{"absent-1", "absent-2"} {
		if err := s.rdb.ZAdd(t.Context(), prefix+"deadlines",
			redis.Z{Score: far, Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const series = "forebay_reconciler_repairs_total"
	w := s.start(redistest.Client(t))
	s.until("nothing is repaired", func() bool { return w.sum(t, series, leaky.NoWait) == 2 })
	if total := w.sum(t, series, s.settings.Backend); total != 2 {
		t.Errorf("%v repairs in all", total)
	}
	s.await(s.offer(nil))
	w.finish(t)
	if n := log.count("put right"); n != 1 || log.count("repair=deadline count=2") != 1 {
		t.Errorf("%d log lines:\n%s", n, log.String())
	}
	r, err := s.line.CheckBooks(t.Context())
	if err != nil || r.Difference != 0 || r.Repairs[leaky.NoWait] != 2 {
		t.Errorf("the books: %+v, %v", r, err)
	}
	s.check()
}

// A rate over the first repair is right only if its series was there before, at 0.
func TestEveryKindOfRepairHasItsSeriesFromTheStart(t *testing.T) {
	t.Parallel()
	s := newSite(t, ok)
	w := s.start(redistest.Client(t))
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "forebay_reconciler_repairs_total" {
			if len(f.GetMetric()) != len(leaky.RepairKinds) {
				t.Errorf("%d series, want %d", len(f.GetMetric()), len(leaky.RepairKinds))
			}
			return
		}
	}
	t.Error("there is no such series")
}
