package cache_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

// each runs a test on real Redis and on the embedded one. The key is the test's own.
func each(t *testing.T, check func(t *testing.T, rdb redis.UniversalClient, key string)) {
	t.Parallel()
	clients := map[string]func(testing.TB) redis.UniversalClient{
		"redis": redistest.Client, "embedded": redistest.Miniredis,
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, client(t), cache.Key(redistest.Name(t, "op"), "", nil))
		})
	}
}

func put(t *testing.T, rdb redis.UniversalClient, key string, a cache.Answer,
	staleFor time.Duration) {
	t.Helper()
	if err := cache.New(rdb).Put(t.Context(), key, a, staleFor, cache.Owner{}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, rdb redis.UniversalClient, key string) (cache.Answer, bool) {
	t.Helper()
	a, ok, err := cache.New(rdb).Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return a, ok
}

// Case C97 with its numbers, and other contents of a body.
func TestAnAnswerComesBackByteForByte(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	each(t, func(t *testing.T, rdb redis.UniversalClient, key string) {
		for _, a := range []cache.Answer{
			{Status: 200, ContentType: "application/json",
				Body: []byte(`{"b":616581622363398142, "a":9007199254740993,"x":1e400 ,"y":1.10}` +
					"\n")},
			{Status: 204},
			{Status: 200, Fields: jobs.Fields(strings.Repeat("f", jobs.MaxFields)),
				Body: []byte("N27")},
			{Status: 201, ContentType: "image/png", Body: every},
			{Status: 200, ContentType: "text/plain; charset=\"1 1 1\"",
				Fields: "Content-Language: 1 1 1\nEtag: \"2\"\n", Body: []byte("\n\n1 2 3 4\n")},
			{Status: 299, Body: bytes.Repeat([]byte("1 MiB"), 1<<20/5)},
		} {
			put(t, rdb, key, a, time.Hour)
			got, ok := get(t, rdb, key)
			if !ok || got.Status != a.Status || got.ContentType != a.ContentType ||
				got.Fields != a.Fields || !bytes.Equal(got.Body, a.Body) {
				t.Errorf("stored status %d, type %q, %d bytes; read %v, %d, %q, %d bytes", a.Status,
					a.ContentType, len(a.Body),
					ok, got.Status, got.ContentType, len(got.Body))
			}
		}
	})
}

func TestAnUnknownKeyHoldsNoAnswer(t *testing.T) {
	each(t, func(t *testing.T, rdb redis.UniversalClient, key string) {
		if a, ok := get(t, rdb, key); ok {
			t.Errorf("got %+v", a)
		}
	})
}

// Case C112: the last good answer is served.
func TestABadAnswerIsNeverStored(t *testing.T) {
	each(t, func(t *testing.T, rdb redis.UniversalClient, key string) {
		for _, status := range []int{0, 100, 199, 300, 304, 400, 404, 429, 500, 503, 599} {
			err := cache.New(rdb).Put(t.Context(), key,
				cache.Answer{Status: status, Body: []byte("bad")}, time.Hour, cache.Owner{})
			if !errors.Is(err, cache.ErrNotGood) {
				t.Errorf("status %d: %v, want ErrNotGood", status, err)
			}
		}
		if a, ok := get(t, rdb, key); ok {
			t.Fatalf("stored: %+v", a)
		}
		put(t, rdb, key, cache.Answer{Status: 200, Body: []byte("good")}, time.Hour)
		_ = cache.New(rdb).Put(t.Context(), key, cache.Answer{Status: 500, Body: []byte("bad")},
			time.Hour, cache.Owner{})
		if a, ok := get(t, rdb, key); !ok || string(a.Body) != "good" {
			t.Errorf("got %v %q, want the good one", ok, a.Body)
		}
	})
}

func TestAnAnswerOverItsBoundIsNotStored(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Client(t), cache.Key(redistest.Name(t, "op"), "", nil)
	for name, a := range map[string]cache.Answer{
		"body": {Status: 200, Body: make([]byte, cache.MaxBody+1)},
		"type": {Status: 200, ContentType: strings.Repeat("t", cache.MaxContentType+1)},
		"rest": {Status: 200, Fields: jobs.Fields(strings.Repeat("f", jobs.MaxFields+1))},
	} {
		if err := cache.New(rdb).Put(t.Context(), key, a, time.Hour,
			cache.Owner{}); !errors.Is(err, cache.ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		}
	}
	if _, ok := get(t, rdb, key); ok {
		t.Error("stored all the same")
	}
	most := cache.Answer{Status: 200, ContentType: strings.Repeat("t", cache.MaxContentType),
		Body: make([]byte, 1<<20)}
	put(t, rdb, key, most, time.Hour)
	if _, ok := get(t, rdb, key); !ok {
		t.Error("at the bound: not stored")
	}
}

// The age counts from the backend's answer, even if it is stored later and under another stale_for.
func TestAgeCountsFromTheBackendsAnswer(t *testing.T) {
	each(t, func(t *testing.T, rdb redis.UniversalClient, key string) {
		began := time.Now()
		put(t, rdb, key, cache.Answer{Status: 200, Age: 40 * time.Minute}, 24*time.Hour)
		a, ok := get(t, rdb, key)
		if most := 40*time.Minute + time.Since(began) + time.Millisecond; !ok ||
			a.Age < 40*time.Minute || a.Age > most {
			t.Errorf("age %v, want 40m to %v", a.Age, most)
		}
		if left := rdb.PTTL(t.Context(), key).Val(); left > 23*time.Hour+20*time.Minute ||
			left < 23*time.Hour {
			t.Errorf("TTL %v, want 23h20m", left)
		}
	})
}

func TestAgeGrowsWithRedisClock(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Client(t), cache.Key(redistest.Name(t, "op"), "", nil)
	put(t, rdb, key, cache.Answer{Status: 200}, time.Hour)
	// the effect of 15 minutes on that clock
	if err := rdb.PExpire(t.Context(), key, 45*time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if a, _ := get(t, rdb, key); a.Age < 15*time.Minute || a.Age > 16*time.Minute {
		t.Errorf("age %v, want 15m", a.Age)
	}
	rdb.PExpire(t.Context(), key, 2*time.Hour) // and of a step back by an hour
	if a, _ := get(t, rdb, key); a.Age != 0 {
		t.Errorf("age %v, want 0", a.Age)
	}
}

func TestAnAnswerIsGoneWhenItIsTooOld(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	key := cache.Key(redistest.Name(t, "op"), "", nil)
	put(t, rdb, key, cache.Answer{Status: 200, Age: time.Hour - 20*time.Millisecond}, time.Hour)
	deadline := time.Now().Add(5 * time.Second)
	for {
		a, ok := get(t, rdb, key)
		if !ok {
			break
		}
		if a.Age > time.Hour {
			t.Fatalf("served at age %v", a.Age)
		}
		if time.Now().After(deadline) {
			t.Fatal("still there after 5s")
		}
	}
	for _, tooOld := range []cache.Answer{{Status: 200, Age: time.Hour},
		{Status: 200, Age: 2 * time.Hour}} {
		put(t, rdb, key, tooOld, time.Hour)
		if _, ok := get(t, rdb, key); ok {
			t.Errorf("stored at age %v of 1h", tooOld.Age)
		}
	}
	put(t, rdb, key, cache.Answer{Status: 200}, 0) // an operation that keeps no answers
	if _, ok := get(t, rdb, key); ok {
		t.Error("stored for 0s")
	}
}

// A job may run twice, and a slow worker may store its answer late.
func TestAnOlderAnswerNeverReplacesAYoungerOne(t *testing.T) {
	each(t, func(t *testing.T, rdb redis.UniversalClient, key string) {
		for _, step := range []struct {
			body     string
			age      time.Duration
			staleFor time.Duration
			want     string
		}{
			{"first", time.Minute, time.Hour, "first"},
			{"younger", time.Second, time.Hour, "younger"},
			{"older", 30 * time.Second, time.Hour, "younger"},
			{"older, longer good", 30 * time.Second, 24 * time.Hour, "younger"},
			{"youngest, shorter good", 0, time.Minute, "youngest, shorter good"},
		} {
			put(t, rdb, key, cache.Answer{Status: 200, Body: []byte(step.body), Age: step.age},
				step.staleFor)
			if a, _ := get(t, rdb, key); string(a.Body) != step.want {
				t.Errorf("after %q: %q, want %q", step.body, a.Body, step.want)
			}
		}
	})
}

func TestAValueOfAnotherKindIsAnErrorNotAnAnswer(t *testing.T) {
	each(t, func(t *testing.T, rdb redis.UniversalClient, key string) {
		for _, value := range []string{"", "1", "\n", "2 1000 200 0\nbody", "1 1000 200 9\nbody",
			"1 1000 200 -1\nbody", "1 x 200 0\nbody"} {
			rdb.Set(t.Context(), key, value, time.Hour)
			if a, ok, err := cache.New(rdb).Get(t.Context(), key); ok || err == nil {
				t.Errorf("%q: %+v, %v, %v", value, a, ok, err)
			}
			// an answer replaces it
			put(t, rdb, key, cache.Answer{Status: 200, Body: []byte("good")}, time.Hour)
			if a, ok := get(t, rdb, key); !ok || string(a.Body) != "good" {
				t.Errorf("%q stands in the way of an answer", value)
			}
		}
		rdb.Persist(t.Context(), key)
		if _, ok, err := cache.New(rdb).Get(t.Context(), key); ok || err == nil {
			t.Errorf("without a TTL: %v, %v", ok, err)
		}
	})
}

// Every call of Redis fails once without being applied, and once with only its reply lost. The
// caller then tries again.
func TestAFailedCallDoesNoHarm(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"not applied": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Client(t)
			faults := redistest.NewFaulty(t, rdb)
			key := cache.Key(redistest.Name(t, "op"), "", nil)
			a := cache.Answer{Status: 200, Body: []byte("good")}
			faults.FailNext(redistest.Any, applied)
			if err := cache.New(rdb).Put(t.Context(), key, a, time.Hour,
				cache.Owner{}); err == nil {
				t.Error("Put: no error")
			}
			put(t, rdb, key, a, time.Hour)
			faults.FailNext(redistest.Any, applied)
			if _, ok, err := cache.New(rdb).Get(t.Context(), key); ok || err == nil {
				t.Errorf("Get: %v, %v", ok, err)
			}
			if got, ok := get(t, rdb, key); !ok || string(got.Body) != "good" {
				t.Errorf("in the end: %v %q", ok, got.Body)
			}
		})
	}
}

func TestAFlushedScriptCacheIsReloaded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, key := server.Client(t), cache.Key("op", "", nil)
	put(t, rdb, key, cache.Answer{Status: 200, Body: []byte("one")}, time.Hour)
	if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	put(t, rdb, key, cache.Answer{Status: 200, Body: []byte("two")}, time.Hour)
	if a, _ := get(t, rdb, key); string(a.Body) != "two" {
		t.Errorf("got %q", a.Body)
	}
}

func TestItWorksOnACluster(t *testing.T) {
	t.Parallel()
	rdb, _ := redistest.StartCluster(t)
	for _, payload := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		key := cache.Key("op", "", []byte(payload))
		put(t, rdb, key, cache.Answer{Status: 200, Body: []byte(payload)}, time.Hour)
		if a, ok := get(t, rdb, key); !ok || string(a.Body) != payload {
			t.Errorf("%s: %v %q", payload, ok, a.Body)
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	put(t, rdb, "k", cache.Answer{Status: 200}, time.Hour)
	server.Stop()
	defer server.Cont()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, ok, err := cache.New(rdb).Get(ctx, "k"); ok || err == nil {
		t.Errorf("Get of a hung Redis: %v, %v", ok, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}
