package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// The caller's jobs are listed newest first over pages, with filters, until they are purged.
func TestOwnJobsAreListedAndPurged(t *testing.T) {
	t.Parallel()
	f := setup{capacity: 10}.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var ids []string // newest first
	for range 5 {
		sub, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append([]string{sub.JobID}, ids...)
	}
	listed := func(list List, want ...string) {
		t.Helper()
		var got []string
		for job, err := range f.Jobs(ctx, list) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, job.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", list, got, want)
		}
	}
	listed(List{}, ids...)
	listed(List{Limit: 2}, ids...)
	listed(List{Operation: "no-such-one"})
	var e *Error
	if err := f.Purge(ctx, ids[1]); !errors.As(err, &e) || e.Code != api.CodeNotFinished {
		t.Errorf("a waiting job was purged: %v", err)
	}
	for _, id := range ids[1:3] {
		if job, err := f.Cancel(ctx, id); err != nil || job.Status != api.Canceled {
			t.Fatalf("%+v, %v", job, err)
		}
	}
	listed(List{Status: api.Canceled, Limit: 1}, ids[1], ids[2])
	if err := f.Purge(ctx, ids[1]); err != nil {
		t.Fatal(err)
	}
	listed(List{Status: api.Canceled}, ids[2])
	listed(List{Limit: 3}, ids[0], ids[2], ids[3], ids[4])
	for _, err := range []error{
		f.Purge(ctx, ids[1]), second(f.Status(ctx, ids[1])), second(f.Wait(ctx, ids[1])),
		second(f.Result(ctx, ids[1])),
	} {
		if !errors.As(err, &e) || e.Status != 410 || e.Code != api.CodeJobGone {
			t.Errorf("a purged job: %v", err)
		}
	}
	_, err := f.List(ctx, List{Cursor: "none of the server's"})
	if !errors.As(err, &e) || e.Status != 400 {
		t.Errorf("%v", err)
	}
}

// A fresh answer comes without a job, and only if the client accepts it.
func TestAFreshAnswerOfTheRealServers(t *testing.T) {
	t.Parallel()
	f := setup{change: func(c *admission.Config) {
		c.Operations[0].Overload.FreshFor = 10 * time.Minute
	}}.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	known := Request{Operation: f.operation, Payload: []byte(`1`)}
	a := cache.Answer{Status: 200, ContentType: "text/plain", Body: []byte("one"), Age: time.Minute}
	key := cache.Key(f.operation, "", known.Payload)
	if err := f.cache.Put(ctx, key, a, time.Hour, cache.Owner{}); err != nil {
		t.Fatal(err) // as the worker does
	}
	for _, only := range []bool{false, true} {
		known.OnlyIfCached = only
		sub, err := f.Submit(ctx, known)
		if err != nil || !sub.Fresh || sub.Degraded || sub.JobID != "" || sub.Job != nil ||
			string(sub.Result.Body) != "one" || sub.Age < time.Minute || sub.Age > 2*time.Minute {
			t.Fatalf("%+v, %v", sub, err)
		}
	}
	var e *Error
	_, err := f.Submit(ctx,
		Request{Operation: f.operation, Payload: []byte(`2`), OnlyIfCached: true})
	if !errors.As(err, &e) || e.Code != api.CodeNotCached || e.Attempts != 1 {
		t.Errorf("%v", err)
	}
	known.OnlyIfCached, known.NoStale = false, true
	sub, err := f.Submit(ctx, known)
	if err != nil || sub.Fresh || sub.JobID == "" {
		t.Fatalf("%+v, %v", sub, err)
	}
}

// The client notices a job of a fallback operation, also when it submits again with its key.
func TestAFallbackOperationOfTheRealServers(t *testing.T) {
	t.Parallel()
	summary := redistest.Name(t, "summary")
	f := setup{capacity: 5, change: func(c *admission.Config) {
		once, err := limits.Compile(limits.Limit{Name: "once", Algorithm: limits.FixedWindow,
			Per: limits.PerClient, Amount: 1, Window: time.Hour, Owner: c.Operations[0].Name})
		if err != nil {
			t.Fatal(err)
		}
		other := c.Operations[0]
		other.Name = summary
		c.Operations[0].Limits = []admission.Limit{{Rule: once}}
		c.Operations[0].Overload.Steps = []degrade.Step{
			{Kind: degrade.Operation, Operation: summary},
			{Kind: degrade.Body, Body: []byte(`{"later":true}`)},
		}
		c.Operations = append(c.Operations, other)
	}}.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	first := Request{Operation: f.operation, Payload: []byte(`1`)}
	if sub, err := f.Submit(ctx, first); err != nil || sub.Degraded {
		t.Fatalf("%+v, %v", sub, err)
	}
	r := Request{Operation: f.operation, Payload: []byte(`2`), IdempotencyKey: "two"}
	sub, err := f.Submit(ctx, r)
	if err != nil || !sub.Degraded || sub.Reason != "once" || sub.JobID == "" ||
		sub.Job.Operation != summary || !sub.Job.Degraded || sub.Replayed {
		t.Fatalf("%+v, %v", sub, err)
	}
	again, err := f.Submit(ctx, r)
	if err != nil || !again.Degraded || !again.Replayed || again.JobID != sub.JobID {
		t.Errorf("%+v, %v", again, err)
	}
}

// Equal requests share a job, and each caller waits for its own subscription.
func TestEachSubscriptionInAJobIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := setup{capacity: 5, change: func(c *admission.Config) {
		c.Operations[0].Coalesce = true
	}}.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var ids []string
	for range 3 {
		sub, err := f.Submit(ctx, Request{Operation: f.operation, Payload: []byte(`1`)})
		if err != nil || slices.Contains(ids, sub.JobID) {
			t.Fatalf("%+v, %v", sub, err)
		}
		ids = append(ids, sub.JobID)
	}
	ended := make(chan *api.Job, len(ids))
	wait := func(id string) {
		job, err := f.Wait(ctx, id)
		if err != nil {
			t.Error(err)
		}
		ended <- job
	}
	for _, id := range ids {
		go wait(id)
		<-f.transport.streaming
	}
	if _, err := f.Cancel(ctx, ids[1]); err != nil {
		t.Fatal(err)
	}
	if job := <-ended; job == nil || job.ID != ids[1] || job.Status != api.Canceled {
		t.Errorf("%+v ended, want the canceled one", job)
	}
	f.work("text/plain", "one") // for the two remaining subscriptions
	for range 2 {
		if job := <-ended; job == nil || job.Status != api.Succeeded {
			t.Errorf("%+v", job)
			continue
		} else if result, err := f.Result(ctx, job.ID); err != nil || string(result.Body) != "one" {
			t.Errorf("%+v, %v", result, err)
		}
	}
}
