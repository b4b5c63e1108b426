package leaky_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/internal/jobs"
	"forebay/internal/leaky"
	"forebay/internal/redistest"
)

// patience is how long a test waits for a message that must come.
const patience = 10 * time.Second

// listen returns a listener of b's backend whose subscription stands.
func listen(t *testing.T, b *bench) *leaky.Listener {
	t.Helper()
	l := leaky.Listen(b.rdb, []string{b.Settings().Backend})
	t.Cleanup(func() { l.Close() })
	b.awaitSubscription()
	return l
}

// awaitSubscription waits until the last channel that Listen subscribes to has its subscriber.
func (b *bench) awaitSubscription() {
	b.t.Helper()
	channel := jobs.KeyPrefix(b.Settings().Backend) + "final"
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n, err := b.rdb.PubSubNumSub(context.Background(), channel).Result()
		if err == nil && n[channel] > 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("no subscription to %s: %v", channel, err)
		}
	}
}

func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatal("nothing was heard")
	}
	return got
}

// settled waits until all that was published so far has been heard: messages of one connection keep their order.
func (b *bench) settled(l *leaky.Listener) {
	b.t.Helper()
	other := b.job("sentinel")
	done, forget := l.Done(other.Job.ID)
	defer forget()
	channel := jobs.KeyPrefix(b.Settings().Backend) + "final"
	if err := b.rdb.Publish(context.Background(), channel, other.Job.ID).Err(); err != nil {
		b.t.Fatal(err)
	}
	receive(b.t, done)
}

// woken reports whether the drain was woken by what was done so far.
func (b *bench) woken(l *leaky.Listener) bool {
	b.t.Helper()
	b.settled(l)
	select {
	case <-l.Wake(b.Settings().Backend):
		return true
	default:
		return false
	}
}

func TestTheDrainIsWokenWhenItMustBe(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Concurrency = 2 })
	l := listen(t, b)
	expect := func(want bool, after string) {
		t.Helper()
		if got := b.woken(l); got != want {
			t.Errorf("woken = %v after %s", got, after)
		}
	}
	b.fill("acme", 1)
	expect(true, "an offer to an empty line")
	b.fill("acme", 5)
	expect(false, "an offer to a line whose drain knows its next slot")
	first := b.release().Tickets[0]
	b.begin(first, "me")
	b.pass(100 * time.Millisecond)
	second := b.release().Tickets[0]
	b.begin(second, "me")
	expect(false, "releases and starts")
	b.end(first, "me", jobs.Succeeded)
	expect(true, "the end of one of all calls that may run at once")
	b.end(second, "me", jobs.Succeeded)
	expect(false, "the end of a call when there was room already")
	b.pass(time.Second)
	third := b.release().Tickets[0]
	b.pass(time.Second)
	if r := b.release(); len(r.Tickets) != 1 {
		t.Fatalf("release = %+v", r)
	}
	b.cancel(third.ID)
	expect(true, "the cancel of a released job that held the last place")
	b.pause(true)
	expect(true, "a pause")
	b.pause(false)
	expect(true, "the end of a pause")
	fast := rate(t, "100/s")
	b.tune(leaky.Override{Rate: &fast})
	expect(true, "a tuned rate")
	if err := b.ResetTuning(context.Background(), "me"); err != nil {
		t.Fatal(err)
	}
	expect(true, "a reset")
}

// The last job of a line comes back to a drain that sleeps.
func TestTheDrainIsWokenByAJobThatComesBack(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	l := listen(t, b)
	b.accept("acme")
	ticket := b.release().Tickets[0]
	b.begin(ticket, "me")
	b.woken(l)
	b.end(ticket, "me", jobs.Waiting)
	if !b.woken(l) {
		t.Error("a job given back to an empty line woke nobody")
	}
}

func TestDoneTellsEachEnd(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	l := listen(t, b)
	ids := b.fill("acme", 4)
	hasty := b.job("acme")
	hasty.StartWithin = time.Second
	b.pause(true)
	b.offer(hasty)
	ids = append(ids, hasty.Job.ID)
	var ends []<-chan struct{}
	for _, id := range ids {
		for range 2 { // any number may wait for one job
			done, forget := l.Done(id)
			defer forget()
			ends = append(ends, done)
		}
	}
	b.pass(time.Second)
	b.release() // ends the hasty one
	b.pause(false)
	b.cancel(ids[0])
	for i, ticket := range b.release().Tickets {
		b.begin(ticket, "me")
		b.end(ticket, "me", []jobs.State{jobs.Succeeded, jobs.Failed, jobs.Canceled}[i])
	}
	for _, done := range ends {
		receive(t, done)
	}
}

// Whoever no longer waits is forgotten; the others still hear.
func TestForgettingIsForOneWaiterAlone(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	l := listen(t, b)
	id := b.accept("acme")
	_, forget := l.Done(id)
	stays, forgetOther := l.Done(id)
	defer forgetOther()
	forget()
	forget() // twice is no different
	b.cancel(id)
	receive(t, stays)
}

func TestAListenerHearsAgainAfterItsConnectionWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newLineOn(t, server.Client(t), nil)
	l := listen(t, b)
	killed, err := b.rdb.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Result()
	if err != nil || killed != 1 {
		t.Fatalf("%d connections were killed, %v", killed, err)
	}
	b.awaitSubscription()
	b.accept("acme")
	receive(t, l.Wake(b.Settings().Backend))
}

func TestAClosedListenerLeavesNothingBehind(t *testing.T) {
	b := newLine(t, nil)
	before := goleak.IgnoreCurrent()
	l := leaky.Listen(redistest.Client(t), []string{b.Settings().Backend})
	b.awaitSubscription()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}
