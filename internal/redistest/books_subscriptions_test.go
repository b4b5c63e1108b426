package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ids of a job with subscriptions of two callers, those subscriptions, and a third one that was
// canceled.
const (
	theJob = "b-01a22d94-f8bf-7ec8-b220-c5ff2705f7e0"
	hers   = "b-01a22d94-f8bf-7ec8-b220-c5ff2705f7e1"
	his    = "b-01a22d94-f8bf-7ec8-b220-c5ff2705f7e2"
	left   = "b-01a22d94-f8bf-7ec8-b220-c5ff2705f7e3"
)

// listEntry is the entry of a client's list for a job that was accepted at 1 µs.
func listEntry(id string) string {
	uuid := "\x01\xa2\x2d\x94\xf8\xbf\x7e\xc8\xb2\x20\xc5\xff\x27\x05\xf7"
	return "\x00\x00\x00\x00\x00\x00\x01" + uuid + string([]byte{0xe0 + id[len(id)-1] - '0'})
}

// sharedBooks writes the books of a backend with one job that two callers share.
func sharedBooks(t *testing.T, rdb redis.UniversalClient) (backend, prefix string) {
	t.Helper()
	backend = Name(t, "shared")
	prefix = "fb:{" + backend + "}:"
	const alice, bob = "a11ce0", "b0b000"
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		ctx := t.Context()
		p.Set(ctx, prefix+"job:"+theJob, "1 2 3 4 "+alice+" & {}\npayload", 0)
		p.Set(ctx, prefix+"job:"+hers, fmt.Sprintf("1 2 3 4 %s =%s {}\n", alice, theJob), 0)
		p.Set(ctx, prefix+"job:"+his, fmt.Sprintf("1 2 3 4 %s =%s ! {}\n", bob, theJob), 0)
		p.Set(ctx, prefix+"job:"+left, fmt.Sprintf("1 2 3 4 %s =%s {}\n", bob, theJob), time.Hour)
		p.HSet(ctx, prefix+"state:"+left, "st", "canceled")
		p.PExpire(ctx, prefix+"state:"+left, time.Hour)
		p.HSet(ctx, prefix+"shares:"+theJob, "join", "x", hers, alice, his, bob+"!")
		p.Set(ctx, prefix+"joint:x", theJob, time.Hour)
		for client, ids := range map[string][]string{alice: {hers}, bob: {his, left}} {
			for _, id := range ids {
				p.RPush(ctx, prefix+"mine:"+client, listEntry(id))
			}
			p.PExpire(ctx, prefix+"mine:"+client, time.Hour)
		}
		p.Set(ctx, prefix+"gone:"+left, bob, 2*time.Hour)
		p.ZAdd(ctx, prefix+"callbacks", redis.Z{Member: left, Score: 1})
		p.ZAdd(ctx, prefix+"line", redis.Z{Member: theJob, Score: 1})
		p.HSet(ctx, prefix+"share", alice, 1)
		p.HSet(ctx, prefix+"books", "accepted", 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return backend, prefix
}

func TestEveryDifferenceOfASharedJobIsNamed(t *testing.T) {
	t.Parallel()
	rdb := Client(t)
	type change = func(ctx context.Context, p string) error
	set := func(key, value string, ttl time.Duration) change {
		return func(ctx context.Context, p string) error {
			return rdb.Set(ctx, p+key, value, ttl).Err()
		}
	}
	del := func(key string) change {
		return func(ctx context.Context, p string) error { return rdb.Del(ctx, p+key).Err() }
	}
	persist := func(key string) change {
		return func(ctx context.Context, p string) error { return rdb.Persist(ctx, p+key).Err() }
	}
	expire := func(key string) change {
		return func(ctx context.Context, p string) error {
			return rdb.Expire(ctx, p+key, time.Hour).Err()
		}
	}
	push := func(key, entry string) change {
		return func(ctx context.Context, p string) error {
			return rdb.RPush(ctx, p+key, entry).Err()
		}
	}
	for _, c := range []struct {
		change change
		want   string
	}{
		{func(context.Context, string) error { return nil }, ""},
		{set("joint:y", theJob, time.Hour),
			"joint:y leads to " + theJob + ", which can't be joined"},
		{set("joint:x", "b-unknown", time.Hour),
			"joint:x leads to b-unknown, which can't be joined"},
		{expire("job:" + theJob), "joint:x leads to"},
		{persist("joint:x"), "joint:x has no TTL"},
		{del("job:" + theJob), "shares:" + theJob + " is of no shared job"},
		{expire("shares:" + theJob),
			"shares:" + theJob + " is of no shared job, or only one of them ends"},
		{del("shares:" + theJob), "subscription " + hers + " counts for no job"},
		{del("job:" + hers), "shares:" + theJob + " names " + hers + " of client a11ce0"},
		{set("job:"+hers, "1 2 3 4 b0b000 ="+theJob+" {}\n", 0),
			"shares:" + theJob + " names " + hers + " of client a11ce0"},
		{expire("job:" + his),
			"subscription " + his + " ends: true; its job " + theJob + ": false"},
		{persist("job:" + left), "subscription " + left + " is canceled by itself; it ends: false"},
		{persist("state:" + left), "key state:" + left + " has no TTL and no owner"},
		{persist("gone:" + left), "key gone:" + left + " has no TTL and no owner"},
		{persist("mine:b0b000"), "key mine:b0b000 has no TTL and no owner"},
		{del("mine:b0b000"), his + " is in no client's list"},
		{push("mine:b0b000", listEntry(hers)),
			"mine:b0b000 has " + hers + ", which is of client a11ce0"},
		{push("mine:b0b000", "x"), "mine:b0b000 has an entry of 1 bytes"},
	} {
		backend, prefix := sharedBooks(t, rdb)
		if err := c.change(t.Context(), prefix); err != nil {
			t.Fatal(err)
		}
		b, err := readBooks(t.Context(), rdb, backend)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(b.differences(), "\n"); !strings.Contains(got, c.want) ||
			(c.want == "") != (got == "") {
			t.Errorf("want %q among\n%s", c.want, got)
		}
	}
}
