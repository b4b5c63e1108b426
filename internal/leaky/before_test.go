package leaky_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/redistest"
)

// beforeOneScript is all that Redis held, when five requests of a client and one of an address had
// been accepted, of the version in which a job was not yet admitted by one script: plain jobs, one
// of priority low with a deadline, two subscriptions of one client to a shared job, and a job of an
// Idempotency-Key; all but the address's hold permits of the limit c.
//
//go:embed testdata/before-one-script.json
var beforeOneScript []byte

// madeAt is about when that was.
const madeAt = 1796128914_000_000 // µs since 1970

// loadBefore puts that into Redis, as if it had been written now.
func loadBefore(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	var keys []struct {
		Name, Type string
		Values     [][]byte
	}
	if err := json.Unmarshal(beforeOneScript, &keys); err != nil {
		t.Fatal(err)
	}
	moment, since := regexp.MustCompile(`\b1796\d{12}\b`), time.Now().UnixMicro()-madeAt
	now := func(text string) string {
		return moment.ReplaceAllStringFunc(text, func(old string) string {
			n, _ := strconv.ParseInt(old, 10, 64)
			return strconv.FormatInt(n+since, 10)
		})
	}
	for _, k := range keys {
		command := map[string]string{"string": "SET", "hash": "HSET", "zset": "ZADD", "list": "RPUSH"}[k.Type]
		args := []any{command, k.Name}
		for _, v := range k.Values {
			args = append(args, now(string(v)))
		}
		if k.Type == "zset" { // members come before their scores
			for i := 2; i < len(args); i += 2 {
				args[i], args[i+1] = args[i+1], args[i]
			}
		}
		if err := rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
	}
}

// docs/operating.md says so.
func TestJobsOfTheVersionBeforeAreDrained(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	t.Cleanup(func() { rdb.Close() })
	loadBefore(t, rdb)
	line := leaky.New(rdb, leaky.Settings{
		Backend:  "b",
		Drain:    leaky.Drain{Rate: leaky.Unlimited, Burst: 1, Concurrency: 10},
		Room:     leaky.Room{Capacity: 100, MaxWait: time.Hour, ClientShare: 1},
		Attempts: 1,
	}).Limited(limits.Script{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	payloads := map[string]bool{}
	for len(payloads) < 5 {
		r, err := line.Release(ctx)
		if err != nil {
			t.Fatalf("after %d jobs: %v", len(payloads), err)
		}
		for _, ticket := range r.Tickets {
			started, err := line.Start(ctx, ticket, "me")
			if err != nil || started.Outcome != leaky.Go {
				t.Fatalf("%+v, %v", started, err)
			}
			payloads[string(started.Job.Payload)] = true
			verdict, _, err := line.Settle(ctx, leaky.Settlement{Ticket: ticket, Owner: "me", To: jobs.Succeeded,
				Took: time.Millisecond, Result: jobs.Meta{Status: 200}})
			if err != nil || verdict != leaky.Settled {
				t.Fatalf("%v, %v", verdict, err)
			}
		}
	}
	for _, id := range []string{"b-a869cbde-0165-4c4f-b45f-b0448a86d29f", "b-51438914-51a6-46d4-8606-61a126fb9520",
		"b-71433510-41c0-89db-891b-bcbf0cf6fa25", "b-8d2f79ef-7981-4239-949d-a38eb03067ca",
		"b-5bd24bac-21e6-4b75-9173-ece0bc7bb02f" /* a subscription */} {
		if look, err := line.Look(ctx, id); err != nil || look.Standing.State != jobs.Succeeded {
			t.Errorf("%s: %+v, %v", id, look.Standing, err)
		}
	}
	if books, err := line.CheckBooks(ctx); err != nil || books.Difference != 0 || books.Books.Succeeded != 5 {
		t.Errorf("%+v, %v", books, err)
	}
	permits := "fb:{fb2ef4b9e1ec52a48187711800c79c19}:limit:c:32200110887e8469ba3fb9995af6c90d"
	if n := rdb.ZCard(ctx, permits).Val(); n != 0 {
		t.Errorf("%d permits are still held", n)
	}
}
