package leaky_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/redistest"
)

// patience is how long a test waits for a message that must come.
const patience = 10 * time.Second

// listen returns a listener of b's backend that has subscribed. It also listens to a backend that
// doesn't exist, for settled.
func listen(t *testing.T, b *bench, options ...leaky.ListenOption) *leaky.Listener {
	t.Helper()
	l := leaky.Listen(b.rdb, []string{b.Settings().Backend, b.absent()}, options...)
	t.Cleanup(func() { l.Close() })
	b.awaitSubscription()
	b.settled(l)
	return l
}

func (b *bench) absent() string { return b.Settings().Backend + "-absent" }

// awaitSubscription waits until the channels have a subscriber. They all get it in one step.
func (b *bench) awaitSubscription() {
	b.t.Helper()
	channel := jobs.KeyPrefix(b.Settings().Backend) + "abort" // every listener receives it
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
		t.Fatal("nothing was received")
	}
	return got
}

// settled waits until all messages so far have been received: messages of one connection keep their
// order.
func (b *bench) settled(l *leaky.Listener) {
	b.t.Helper()
	if err := b.rdb.Publish(context.Background(), jobs.KeyPrefix(b.absent())+"wake",
		"").Err(); err != nil {
		b.t.Fatal(err)
	}
	receive(b.t, l.Wake(b.absent()))
}

// woken reports whether the drain was woken so far.
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
	expect(true, "the cancel of a released job that used up the concurrency")
	b.pause(true)
	expect(true, "a pause")
	b.pause(false)
	expect(true, "the end of a pause")
	fast := rate(t, "100/s")
	b.tune(leaky.Override{Rate: &fast})
	expect(true, "a tuned rate")
	if err := b.Retune(context.Background(), leaky.Tuning{Reset: true, By: "me"}); err != nil {
		t.Fatal(err)
	}
	expect(true, "a reset")
}

// When the last job of a line comes back, the drain sleeps.
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
		t.Error("a job given back to an empty line woke no drain")
	}
}

func TestWatchNotifiesOfEachEnd(t *testing.T) {
	t.Parallel()
	b := newLine(t, func(s *leaky.Settings) { s.Rate = leaky.Unlimited })
	l := listen(t, b)
	ids := b.fill("acme", 4)
	hasty := b.job("acme")
	hasty.StartWithin = time.Second
	b.pause(true)
	b.offer(hasty)
	ids = append(ids, hasty.Job.ID)
	var moves []<-chan struct{}
	for _, id := range ids {
		for range 2 { // any number may watch one job
			moved, forget := l.Watch(id)
			defer forget()
			moves = append(moves, moved)
		}
	}
	all := func(want bool, after string) {
		t.Helper()
		b.settled(l)
		for i, moved := range moves {
			select {
			case <-moved:
				if !want {
					t.Errorf("watcher %d was notified after %s", i, after)
				}
			default:
				if want {
					t.Errorf("watcher %d wasn't notified after %s", i, after)
				}
			}
		}
	}
	all(false, "nothing")
	b.pass(time.Second)
	b.release() // ends the hasty one
	b.pause(false)
	b.cancel(ids[0])
	tickets := b.release().Tickets
	for _, ticket := range tickets {
		b.begin(ticket, "me")
	}
	all(true, "ends and starts")
	moves = moves[2:8] // of those that run
	for i, ticket := range tickets {
		b.end(ticket, "me", []jobs.State{jobs.Succeeded, jobs.Failed, jobs.Canceled}[i])
	}
	all(true, "the ends of calls")
}

// Watchers are also notified of moves before the end.
func TestWatchNotifiesOfEachMoveThatAClientSees(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	l := listen(t, b)
	id := b.accept("acme")
	moved, forget := l.Watch(id)
	defer forget()
	notified := func(want bool, after string) {
		t.Helper()
		b.settled(l)
		select {
		case <-moved:
			if !want {
				t.Errorf("notified after %s", after)
			}
		default:
			if want {
				t.Errorf("not notified after %s", after)
			}
		}
	}
	ticket := b.release().Tickets[0]
	notified(false, "its slot, which is a moment ahead of its start")
	b.begin(ticket, "me")
	notified(true, "its start")
	b.end(ticket, "me", jobs.Delayed)
	notified(true, "a try that is to be repeated")
	b.pass(time.Hour)
	ticket = b.release().Tickets[0]
	notified(true, "the end of its backoff")
	b.begin(ticket, "me")
	b.end(ticket, "me", jobs.Waiting)
	notified(true, "a call that was given back")
	b.accept("acme")
	notified(false, "what another job does")
}

// A watcher of a subscription also watches its job.
func TestOneWatcherIsNotifiedOfSeveralJobs(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	l := listen(t, b)
	ids := b.fill("acme", 2)
	moved, forget := l.Watch(ids[0], ids[1], ids[1])
	for _, id := range ids {
		b.cancel(id)
		receive(t, moved)
	}
	forget()
	if n := l.Watched(); n != 0 {
		t.Errorf("%d watched jobs are left", n)
	}
}

// A watcher that no longer waits is forgotten. The others are still notified.
func TestForgettingIsForOneWatcherOnly(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	l := listen(t, b)
	id := b.accept("acme")
	_, forget := l.Watch(id)
	stays, forgetOther := l.Watch(id)
	forget()
	forget() // a second time is no different
	b.cancel(id)
	receive(t, stays)
	forgetOther()
	if n := l.Watched(); n != 0 {
		t.Errorf("%d watched jobs are left", n)
	}
}

// While the connection is down a message may be lost, so all watchers are notified once it is back.
func TestWatchersAreNotifiedWhenMessagesMayHaveBeenLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newLineOn(t, server.Client(t), nil)
	l := listen(t, b)
	moved, forget := l.Watch(b.accept("acme"))
	defer forget()
	other, forgetOther := l.Watch(b.accept("acme"))
	defer forgetOther()
	if err := b.rdb.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	receive(t, moved)
	receive(t, other)
}

// A process without watchers doesn't receive the moves of all jobs.
func TestAWorkersListenerReceivesNoMoves(t *testing.T) {
	t.Parallel()
	b := newLine(t, nil)
	backend := b.Settings().Backend
	l := listen(t, b, leaky.WithoutMoves())
	for _, topic := range []string{"moved", "final"} {
		channel := jobs.KeyPrefix(backend) + topic
		n, err := b.rdb.PubSubNumSub(context.Background(), channel).Result()
		if err != nil || n[channel] != 0 {
			t.Errorf("%d hear %s, %v", n[channel], topic, err)
		}
	}
	b.accept("acme")
	receive(t, l.Wake(backend))
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
