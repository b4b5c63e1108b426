package jobs_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

// Deliveries of all backends share a queue, so this test has a Redis of its own.
func TestDeliveriesReachAServingProcessAndHoldNoTicketUp(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	here, there := jobs.NewDeliveries(rdb, log), jobs.NewDeliveries(rdb, log)

	sent := []jobs.Delivery{{ID: jobs.NewID("a"), Claim: 1}, {ID: jobs.NewID("b"), Claim: 1 << 50},
		{ID: jobs.NewID("b"), Claim: 3}}
	if err := here.Send(ctx, sent); err != nil {
		t.Fatal(err)
	}
	if err := here.Send(ctx, sent[:1]); err != nil { // the first one again
		t.Fatal(err)
	}
	if n, err := here.Waiting(ctx); err != nil || n != len(sent) {
		t.Errorf("%d wait, %v", n, err)
	}
	got := make(chan jobs.Delivery, 10)
	hold := make(chan struct{})
	stop, err := there.Serve(func(d jobs.Delivery) {
		got <- d
		<-hold // like a slow receiver
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[jobs.Delivery]bool{}
	for range sent {
		select {
		case d := <-got:
			found[d] = true
		case <-ctx.Done():
			t.Fatal("not all came")
		}
	}
	for _, d := range sent {
		if !found[d] {
			t.Errorf("%+v didn't come", d)
		}
	}
	if n, err := here.Waiting(ctx); err != nil || n != 0 {
		t.Errorf("%d wait, %v", n, err)
	}

	tickets := jobs.NewQueue(rdb, "b", log)
	started := make(chan struct{})
	stopTickets, err := tickets.Serve(func(jobs.Ticket) { close(started) })
	if err != nil {
		t.Fatal(err)
	}
	if err := tickets.Send(ctx, []jobs.Ticket{{ID: jobs.NewID("b"), Run: 1, Due: 1}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-started:
	case <-ctx.Done():
		t.Fatal("no ticket came while deliveries hung")
	}
	close(hold)
	var all sync.WaitGroup
	for _, f := range []func(context.Context) error{stop, stopTickets} {
		all.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
