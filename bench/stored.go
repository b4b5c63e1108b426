package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/forebay/forebay/bench/load"
	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// stored measures degraded answers. For a sick backend they come from the api's memory or from
// Redis, and no limit is decided. For a client that a limit refuses they cost a decision in Redis.
func (e *env) stored(ctx context.Context, r *report, f *forebay, plain, ping side) error {
	answers := cache.New(e.rdb)
	keep := func(operation string, payload []byte) error {
		a := cache.Answer{Status: http.StatusOK, ContentType: "application/json", Body: storedBody,
			Age: time.Minute}
		return answers.Put(ctx, cache.Key(operation, "", payload), a, 24*time.Hour,
			cache.Owner{Operation: operation, Client: "open-0"})
	}
	e.say("front: %d stored answers", e.plan.Stored)
	var many [][]byte
	for i := range e.plan.Stored {
		other := fmt.Appendf(nil, `{"month":"2026-11","n":%d}`, i)
		if err := keep("known", other); err != nil {
			return err
		}
		many = append(many, f.request("known", other, fmt.Sprintf(openKey, i%e.plan.Clients)))
	}
	var same, refused [][]byte
	for i := range e.plan.Clients {
		same = append(same, f.request("known", payload, fmt.Sprintf(openKey, i)))
		refused = append(refused, f.request("refused", payload, fmt.Sprintf(shutKey, i)))
	}
	for _, operation := range []string{"known", "refused"} {
		if err := keep(operation, payload); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name     string
		requests [][]byte
		baseline side
		goal     float64 // 0: none
	}{
		{"degraded (200) from memory", same, plain, 0.7},
		{"degraded (200) from Redis", many, ping, 0.95},
		{"degraded (200), refused by a limit", refused, ping, 0},
	} {
		if err := e.closeGate(ctx); err != nil {
			return err
		}
		// A round of the many requests takes longer than the api may trust its memory, so that each
		// answer is read from Redis.
		target := load.Target{Addr: f.addr, Status: http.StatusOK, Requests: c.requests,
			Rotate: len(c.requests) > e.plan.Clients}
		ours := side{c.name, target, false}
		if err := e.compare(ctx, r, ours, c.baseline, 64, c.goal); err != nil {
			return err
		}
	}
	return nil
}

// storedBody is an answer's body of 256 bytes.
var storedBody = payload

// request returns a POST of a job.
func (f *forebay) request(operation string, payload []byte, key string) []byte {
	body := fmt.Appendf(nil, `{"operation":"%s","payload":%s}`, operation, payload)
	return load.Request("POST", f.addr, "/v1/jobs", body, "Authorization: Bearer "+key)
}

// closeGate closes the gate of the backend sick for five minutes, as the backend's own 503 with a
// Retry-After would.
func (e *env) closeGate(ctx context.Context) error {
	rate, err := leaky.ParseRate("1/s")
	if err != nil {
		return err
	}
	line := leaky.New(e.rdb, leaky.Settings{
		Backend:  "sick",
		Drain:    leaky.Drain{Rate: rate, Burst: 1, Concurrency: 10},
		Room:     leaky.Room{Capacity: 1000, MaxWait: time.Hour, ClientShare: 1},
		Attempts: 1,
		Feedback: true,
	})
	prefix := jobs.KeyPrefix("sick")
	if err := e.rdb.Del(ctx, prefix+"pace", prefix+"line").Err(); err != nil {
		return err
	}
	job := jobs.Job{ID: jobs.NewID("sick"), Operation: "known", Client: "open-0",
		Priority: jobs.Normal, Payload: payload}
	offer := leaky.Offer{Job: job, Weight: 1, MaxAge: time.Hour, Keep: time.Hour}
	if _, err := line.Offer(ctx, offer); err != nil {
		return err
	}
	granted, err := line.Release(ctx)
	if err != nil || len(granted.Tickets) != 1 {
		return fmt.Errorf("close the gate: %d slots, %w", len(granted.Tickets), err)
	}
	t := granted.Tickets[0]
	if s, err := line.Start(ctx, t, "bench"); err != nil || s.Outcome != leaky.Go {
		return fmt.Errorf("close the gate: %s, %w", s.Outcome, err)
	}
	_, _, err = line.Settle(ctx, leaky.Settlement{Ticket: t, Owner: "bench", To: jobs.Waiting,
		Sign: leaky.Throttled, Gate: 5 * time.Minute})
	if err != nil {
		return err
	}
	return pause(ctx, time.Second) // the api has seen it by then
}
