package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// balanced writes the books of a backend with one job in each place: waiting, waiting again,
// delayed, released, running, succeeded and failed. The live jobs are alice's, except for the
// running one.
func balanced(t *testing.T, rdb redis.UniversalClient) (backend, prefix string) {
	t.Helper()
	backend = Name(t, "books")
	prefix = "fb:{" + backend + "}:"
	now := float64(time.Now().UnixMicro())
	const alice, bob = "a11ce0", "b0b000"
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		ctx := t.Context()
		for i, id := range []string{"fresh", "again", "delayed", "released", "running",
			"done", "sick"} {
			client := alice
			if id == "running" {
				client = bob
			}
			ttl := time.Duration(0)
			if id == "done" || id == "sick" {
				ttl = time.Hour
			}
			counts := map[string]string{"running": "$500 ", "again": "& $70 ", "done": "$20 "}[id]
			p.Set(ctx, prefix+"job:"+id,
				fmt.Sprintf("%d 2 3 4 %s %s{}\npayload", i, client, counts), ttl)
		}
		p.ZAdd(ctx, prefix+"line", redis.Z{Member: "fresh", Score: 1},
			redis.Z{Member: "again", Score: 2})
		p.ZAdd(ctx, prefix+"deadlines", redis.Z{Member: "fresh", Score: now + 1e9},
			redis.Z{Member: "gone", Score: now - 1e9})
		p.ZAdd(ctx, prefix+"delayed", redis.Z{Member: "delayed", Score: now})
		p.ZAdd(ctx, prefix+"inflight", redis.Z{Member: "released", Score: now},
			redis.Z{Member: "running", Score: now + 1e7})
		p.ZAdd(ctx, prefix+"flows", redis.Z{Member: alice, Score: 2})
		p.HSet(ctx, prefix+"share", alice, 3)
		p.HSet(ctx, prefix+"stored", alice, 70, bob, 500)
		p.ZAdd(ctx, prefix+"kept:"+alice, redis.Z{Score: -30, Member: ""},
			redis.Z{Score: now + 3.6e9, Member: "done 25"},
			redis.Z{Score: now - 1, Member: "gone 5"})
		p.PExpire(ctx, prefix+"kept:"+alice, time.Hour)
		p.HSet(ctx, prefix+"pace", "last", 1)
		p.HSet(ctx, prefix+"books", "accepted", 9, "succeeded", 1, "failed", 2, "lost", 1,
			"started", 9)
		p.HSet(ctx, prefix+"sweep", "stage", 1)
		p.HSet(ctx, prefix+"state:again", "st", "waiting")
		p.HSet(ctx, prefix+"state:delayed", "st", "delayed")
		p.HSet(ctx, prefix+"state:released", "st", "released")
		p.HSet(ctx, prefix+"state:running", "st", "running")
		p.HSet(ctx, prefix+"state:done", "st", "succeeded", "exp", fmt.Sprintf("%.0f", now+3.6e9))
		p.PExpire(ctx, prefix+"state:done", time.Hour)
		p.Set(ctx, prefix+"result:done", "bytes", time.Hour)
		p.ZAdd(ctx, prefix+"failed", redis.Z{Member: "sick", Score: now})
		// kept for 5 ms; its operation asks for 4
		p.HSet(ctx, prefix+"state:sick", "st", "failed", "fin", 1_000_000, "exp", 1_005_000)
		p.PExpire(ctx, prefix+"state:sick", time.Hour)
		p.Set(ctx, prefix+"result:sick", "bytes", time.Hour)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return backend, prefix
}

func TestBalancedBooksPass(t *testing.T) {
	t.Parallel()
	cluster, _ := StartCluster(t)
	servers := map[string]redis.UniversalClient{
		"server": Client(t), "miniredis": Miniredis(t), "cluster": cluster,
	}
	for name, rdb := range servers {
		backend, _ := balanced(t, rdb)
		CheckBooks(t, rdb, backend)
		CheckBooks(t, rdb, Name(t, "no-jobs-yet"))
		if t.Failed() {
			t.Fatalf("on %s", name)
		}
	}
}

func TestEveryKindOfDifferenceIsNamed(t *testing.T) {
	t.Parallel()
	type change = func(ctx context.Context, rdb redis.UniversalClient, p string) error
	hset := func(key, field string, value any) change {
		return func(ctx context.Context, rdb redis.UniversalClient, p string) error {
			return rdb.HSet(ctx, p+key, field, value).Err()
		}
	}
	zadd := func(key, member string, score float64) change {
		return func(ctx context.Context, rdb redis.UniversalClient, p string) error {
			return rdb.ZAdd(ctx, p+key, redis.Z{Member: member, Score: score}).Err()
		}
	}
	del := func(key string) change {
		return func(ctx context.Context, rdb redis.UniversalClient, p string) error {
			return rdb.Del(ctx, p+key).Err()
		}
	}
	persist := func(key string) change {
		return func(ctx context.Context, rdb redis.UniversalClient, p string) error {
			return rdb.Persist(ctx, p+key).Err()
		}
	}
	expire := func(key string) change {
		return func(ctx context.Context, rdb redis.UniversalClient, p string) error {
			return rdb.Expire(ctx, p+key, time.Hour).Err()
		}
	}
	shorten := func(key string) change {
		return func(ctx context.Context, rdb redis.UniversalClient, p string) error {
			return rdb.Expire(ctx, p+key, time.Minute).Err()
		}
	}
	far := float64(time.Now().Add(2 * time.Hour).UnixMicro())
	for _, c := range []struct {
		change change
		want   string
	}{
		{hset("books", "accepted", 8), "8 accepted, but 2 line + 1 delayed + 2 inflight + " +
			"1 succeeded + 2 failed + 0 canceled + 0 expired + 1 lost make 9"},
		{hset("books", "lost", 0), "make 8"},
		{del("failed"), "sick has failed and is not in failed"},
		{zadd("failed", "again", 1), `again is in failed and its state is "waiting"`},
		{zadd("failed", "unknown", 1), `unknown is in failed and its state is ""`},
		{shorten("state:sick"), "sick has failed; its record ends in"},
		{shorten("result:sick"), "sick has failed; its record ends in"},
		{hset("books", "expired", -1), `books.expired is "-1"`},
		{hset("state:done", "st", "canceled"), "1 jobs on record are canceled, books count 0"},
		{zadd("line", "delayed", 1), "delayed is in line and in delayed"},
		{del("job:fresh"), "fresh is in line and has no record"},
		{hset("state:again", "st", "running"), `again is in line and its state is "running"`},
		{hset("state:released", "st", "waiting"),
			`released is in inflight and its state is "waiting"`},
		{del("state:delayed"), `delayed is in delayed and its state is ""`},
		{zadd("deadlines", "running", far), "running has a deadline ahead and doesn't wait"},
		{del("line"), `fresh has a record without a TTL and is nowhere; its state is ""`},
		{persist("job:done"),
			`done has a record without a TTL and is nowhere; its state is "succeeded"`},
		{expire("job:again"), "again has a record with a TTL and is in line"},
		{hset("state:done", "st", "running"),
			`done has a record with a TTL and its state is "running"`},
		{zadd("inflight", "running", far), "running has a lease until"},
		{hset("share", "a11ce0", 2),
			"share of client a11ce0 is 2, it has 3 jobs in line and delayed"},
		{hset("share", "b0b000", 0),
			"share of client b0b000 is 0, it has 0 jobs in line and delayed"},
		{del("share"), "client a11ce0 has no share, it has 3 jobs in line and delayed"},
		{hset("stored", "b0b000", 499),
			"499 bytes are counted for client b0b000, its jobs that live have 500"},
		{hset("stored", "c0", 1), "1 bytes are counted for client c0, its jobs that live have 0"},
		{del("stored"), "no bytes are counted for client a11ce0, its jobs that live have 70"},
		{zadd("kept:a11ce0", "", -25), "kept:a11ce0 says 25 bytes, its jobs have 30"},
		{zadd("kept:a11ce0", "other 25", far),
			`kept:a11ce0 has "other 25", of no job that ended so`},
		{del("kept:a11ce0"),
			"done has ended with 25 bytes, which aren't counted for client a11ce0"},
		{persist("kept:a11ce0"), "key kept:a11ce0 has no TTL and no owner"},
		{persist("state:done"), "key state:done has no TTL and no owner"},
		{persist("result:done"), "key result:done has no TTL and no owner"},
		{hset("stray", "f", "v"), "key stray has no TTL and no owner"},
	} {
		rdb := Client(t)
		backend, prefix := balanced(t, rdb)
		if err := c.change(t.Context(), rdb, prefix); err != nil {
			t.Fatal(err)
		}
		b, err := readBooks(t.Context(), rdb, backend)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(b.differences(), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("want %q among\n%s", c.want, got)
		}
	}
}
