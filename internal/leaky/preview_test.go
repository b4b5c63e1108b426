package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

func (b *bench) preview(f leaky.FailedFilter, max int) leaky.Preview {
	b.t.Helper()
	p, err := b.PreviewRedrive(context.Background(), f, max)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) redrivePreviewed(token string) leaky.RedriveResult {
	b.t.Helper()
	done, err := b.RedrivePreviewed(context.Background(), token)
	if err != nil {
		b.t.Fatal(err)
	}
	return done
}

// The jobs of a preview are redriven, no others: whatever fails, is redriven or expires meanwhile.
func TestAPreviewedRedriveIsOfExactlyTheseJobs(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	var ids []string
	for range 5 {
		b.accept("acme")
		ids = append(ids, b.fail("x"))
	}
	p := b.preview(leaky.FailedFilter{Code: "x"}, 4)
	if p.Jobs != 4 || p.Stopped != leaky.MaxReached || p.Ahead != 0 || p.Room != 100 ||
		!p.Oldest.Equal(b.now.Add(-5*time.Second)) || p.Wait != 300*time.Millisecond {
		t.Errorf("preview = %+v", p)
	}
	b.accept("zeta")
	newer := b.fail("x")
	b.redrive(ids[1])
	b.fail("x") // another failure of a previewed job
	b.redrive(ids[2])
	if got := b.redrivePreviewed(p.Token); got != (leaky.RedriveResult{Redriven: 2, Skipped: 2}) {
		t.Errorf("redriven: %+v", got)
	}
	for id, want := range map[string]jobs.State{ids[0]: jobs.Waiting, ids[1]: jobs.Failed,
		ids[2]: jobs.Waiting, ids[3]: jobs.Waiting, ids[4]: jobs.Failed, newer: jobs.Failed} {
		if got := b.look(id).Standing.State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	d := b.drainer(0)
	d.outcome = func(leaky.Started) leaky.Settlement { return leaky.Settlement{To: jobs.Failed} }
	d.empty()
	if got := b.redrivePreviewed(p.Token); got != (leaky.RedriveResult{Skipped: 4}) {
		t.Errorf("after they have failed again: %+v", got)
	}
}

// A redrive that stopped where the line was full continues with the same token.
func TestAPreviewedRedriveGoesOn(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Capacity = leaky.Unlimited, 150 })
	for range 2 {
		b.fill("acme", 150)
		for b.status().Waiting > 0 {
			for _, ticket := range b.release().Tickets {
				b.begin(ticket, "me")
				b.failed(ticket, "x")
			}
		}
	}
	p := b.preview(leaky.FailedFilter{}, leaky.MaxPreview)
	if p.Jobs != 300 || p.Stopped != "" || p.ByClient["acme"] != 300 || p.Room != 150 {
		t.Fatalf("preview = %+v", p)
	}
	if got := b.redrivePreviewed(p.Token); got != (leaky.RedriveResult{Redriven: 150,
		Stopped: leaky.LineFull}) {
		t.Errorf("the first part: %+v", got)
	}
	b.drainer(0).empty()
	if got := b.redrivePreviewed(p.Token); got != (leaky.RedriveResult{Redriven: 150,
		Skipped: 150}) {
		t.Errorf("the second part: %+v", got)
	}
	b.drainer(0).empty()
}

// Previews are bounded in number, and in time.
func TestPreviewsDoNotPileUp(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	b.accept("acme")
	b.fail("x")
	var tokens []string
	for range 21 {
		tokens = append(tokens, b.preview(leaky.FailedFilter{}, 1).Token)
		b.pass(time.Microsecond)
	}
	prefix := jobs.KeyPrefix(b.Settings().Backend)
	for i, token := range tokens {
		kept, err := b.HasPreview(t.Context(), token)
		if err != nil || kept != (i > 0) {
			t.Errorf("preview %d of 21 is kept: %v, %v", i, kept, err)
		}
		ttl := b.rdb.PTTL(t.Context(), prefix+"preview:"+token).Val()
		if kept && (ttl <= 14*time.Minute || ttl > leaky.PreviewTTL) {
			t.Errorf("preview %d has a TTL of %v", i, ttl)
		}
	}
	if ttl := b.rdb.PTTL(t.Context(), prefix+"previews").Val(); ttl <= 0 || ttl > leaky.PreviewTTL {
		t.Errorf("their list has a TTL of %v", ttl)
	}
	other := newLineOn(t, b.rdb, nil)
	for _, token := range []string{tokens[0], "", "nonsense"} {
		if _, err := b.RedrivePreviewed(t.Context(), token); !errors.Is(err, leaky.ErrNoPreview) {
			t.Errorf("%q: %v", token, err)
		}
	}
	if _, err := other.RedrivePreviewed(t.Context(), tokens[20]); !errors.Is(err,
		leaky.ErrNoPreview) {
		t.Errorf("another backend's token: %v", err)
	}
	for _, n := range []int{0, leaky.MaxPreview + 1} {
		if _, err := b.PreviewRedrive(t.Context(), leaky.FailedFilter{}, n); err == nil {
			t.Errorf("a preview of %d was taken", n)
		}
	}
}

// A search that takes too long is cut short, and what it found binds.
func TestAPreviewIsCutShort(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate, s.Capacity = leaky.Unlimited, 1000 })
	b.fill("acme", leaky.MaxPage)
	for b.status().Waiting > 0 {
		for _, ticket := range b.release().Tickets {
			b.begin(ticket, "me")
			b.failed(ticket, "x")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	other := leaky.New(b.rdb, b.Settings()).At(func() int64 {
		if steps++; steps == 2 {
			cancel()
		}
		return b.now.UnixMicro()
	})
	p, err := other.PreviewRedrive(ctx, leaky.FailedFilter{}, 1000)
	if err != nil || p.Stopped != leaky.TimeOver || p.Jobs == 0 || p.Jobs >= leaky.MaxPage {
		t.Fatalf("%+v, %v", p, err)
	}
	if got := b.redrivePreviewed(p.Token); got != (leaky.RedriveResult{Redriven: p.Jobs}) {
		t.Errorf("%+v", got)
	}
	b.drainer(0).empty()
}

func TestPreviewsOnEveryKindOfRedis(t *testing.T) {
	t.Parallel()
	cluster, _ := redistest.StartCluster(t)
	for name, rdb := range map[string]redis.UniversalClient{"cluster": cluster,
		"miniredis": redistest.Miniredis(t)} {
		b := newLineOn(t, rdb, nil)
		for i := range 22 {
			b.accept(fmt.Sprint("client-", i))
			b.fail("x")
			b.preview(leaky.FailedFilter{}, 10)
		}
		p := b.preview(leaky.FailedFilter{Client: "client-1"}, 10)
		if got := b.redrivePreviewed(p.Token); got != (leaky.RedriveResult{Redriven: 1}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
