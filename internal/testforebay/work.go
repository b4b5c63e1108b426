package testforebay

import (
	"context"
	"time"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// Start takes a job as a worker would, past all others that wait.
func (w *World) Start(id string) leaky.Ticket {
	w.Helper()
	return w.StartWith(id, new(leaky.Started))
}

// StartWith is Start, and notes what the worker learns of the job.
func (w *World) StartWith(id string, started *leaky.Started) leaky.Ticket {
	w.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		r, err := w.Line.Release(context.Background())
		if err != nil {
			w.Fatal(err)
		}
		for _, ticket := range r.Tickets {
			if ticket.ID != id {
				continue
			}
			*started, err = w.Line.Start(context.Background(), ticket, "test")
			if err != nil || started.Outcome != leaky.Go {
				w.Fatalf("start: %+v, %v", *started, err)
			}
			return ticket
		}
		time.Sleep(5 * time.Millisecond) // until the next slot
	}
	w.Fatalf("job %s was never released", id)
	return leaky.Ticket{}
}

// Settle ends an attempt.
func (w *World) Settle(s leaky.Settlement) {
	w.Helper()
	s.Owner = "test"
	verdict, _, err := w.Line.Settle(context.Background(), s)
	if err != nil || verdict != leaky.Settled {
		w.Fatalf("settle: %s, %v", verdict, err)
	}
}

// Succeed runs a job, to which the backend answers with these.
func (w *World) Succeed(id string, status int, contentType string, body []byte) {
	w.Helper()
	w.Settle(leaky.Settlement{Ticket: w.Start(id), To: jobs.Succeeded, Took: time.Millisecond,
		Result: jobs.Meta{Status: status, ContentType: contentType, Size: int64(len(body))},
		Body:   body})
}

// Pause stops the drain, so that predictions have no end and nothing moves.
func (w *World) Pause() {
	w.Helper()
	yes := true
	if err := w.Line.Tune(context.Background(), leaky.Override{Paused: &yes}, "test"); err != nil {
		w.Fatal(err)
	}
}

// Accepted is how many jobs the line has accepted ever.
func (w *World) Accepted() int64 {
	w.Helper()
	st, err := w.Line.Status(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return st.Books.Accepted
}

// FailJob ends a job as failed, after the backend answered with these.
func (w *World) FailJob(id, code string, status int, contentType string, body []byte) {
	w.Helper()
	w.Settle(leaky.Settlement{Ticket: w.Start(id), To: jobs.Failed, Took: time.Millisecond,
		Failure: jobs.Failure{Code: code, Detail: "It went wrong."},
		Result:  jobs.Meta{Status: status, ContentType: contentType, Size: int64(len(body))},
		Body:    body})
}

// Remember stores a last good answer, as the worker does.
func (w *World) Remember(operation, scope, payload string, a cache.Answer) {
	w.Helper()
	key := cache.Key(operation, scope, []byte(payload))
	if err := w.Cache.Put(context.Background(), key, a, time.Hour, cache.Owner{}); err != nil {
		w.Fatal(err)
	}
}

// Keep stores an answer of 7 bytes to a request of a client, as the worker does, and returns the
// answer's key.
func (w *World) Keep(operation, client, payload string) string {
	w.Helper()
	p := w.Config.Operation(operation).Overload
	key := p.CacheKey(operation, client, "pro", []byte(payload))
	a := cache.Answer{Status: 201, ContentType: "text/plain", Body: []byte("secret\n"),
		Age: time.Minute}
	owner := cache.Owner{Operation: operation, Client: client}
	if err := w.Cache.Put(context.Background(), key, a, time.Hour, owner); err != nil {
		w.Fatal(err)
	}
	return key
}
