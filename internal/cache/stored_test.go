package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/cache"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/redistest"
)

// shelf stores answers of operations and clients that belong to the test.
type shelf struct {
	*testing.T
	rdb              redis.UniversalClient
	cache            *cache.Cache
	report, summary  string // operations
	acme, bolt, core string // clients
}

func newShelf(t *testing.T, rdb redis.UniversalClient) *shelf {
	name := func(prefix string) string { return redistest.Name(t, prefix) }
	return &shelf{t, rdb, cache.New(rdb), name("report"), name("summary"), name("acme"),
		name("bolt"), name("core")}
}

// store puts an answer of 10 bytes to a request of the client, and returns its key.
func (s *shelf) store(operation, client, payload string) string {
	s.Helper()
	key := cache.Key(operation, "client:"+client, []byte(payload))
	a := cache.Answer{Status: 201, ContentType: "text/plain", Body: []byte("ten bytes!"),
		Age: 10 * time.Minute}
	if err := s.cache.Put(s.Context(), key, a, time.Hour,
		cache.Owner{Operation: operation, Client: client}); err != nil {
		s.Fatal(err)
	}
	return key
}

// has fails the test unless exactly the wanted answers are there, by key.
func (s *shelf) has(want map[string]bool) {
	s.Helper()
	for key, there := range want {
		if _, ok := get(s.T, s.rdb, key); ok != there {
			s.Errorf("%s is there: %v, want %v", key, ok, there)
		}
	}
}

// eachShelf runs a test on real Redis and on the embedded one.
func eachShelf(t *testing.T, check func(s *shelf)) {
	t.Parallel()
	clients := map[string]func(testing.TB) redis.UniversalClient{
		"redis": redistest.Client, "embedded": redistest.Miniredis,
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(newShelf(t, client(t)))
		})
	}
}

func TestOperatorsSeeHowMuchIsStored(t *testing.T) {
	eachShelf(t, func(s *shelf) {
		for i := range 30 {
			s.store(s.report, s.acme, fmt.Sprint(i))
			s.store(s.report, s.acme, fmt.Sprint(i)) // replaces the previous one
		}
		s.store(s.summary, s.acme, "1")
		gone := s.store(s.report, s.bolt, "1")
		s.rdb.Del(s.Context(), gone) // as eviction does
		for operation, want := range map[string]int{s.report: 30, s.summary: 1, "unknown": 0} {
			h, err := s.cache.Holding(s.Context(), operation)
			if err != nil || h.Answers != want || h.Partial || h.Bytes < int64(20*want) ||
				h.Bytes > int64(120*want) {
				s.Errorf("%s: %+v, %v; want %d answers of 20 bytes and their heads", operation, h,
					err, want)
			}
		}
	})
}

func TestALongListIsCountedInPart(t *testing.T) {
	t.Parallel()
	s := newShelf(t, redistest.Client(t))
	var all []redis.Z
	for i := range cache.MaxCounted {
		all = append(all, redis.Z{Score: float64(time.Now().UnixMilli() + int64(i)),
			Member: cache.Key(s.report, "", fmt.Append(nil, i))})
	}
	if err := s.rdb.ZAdd(t.Context(), cache.ListOf(s.report), all...).Err(); err != nil {
		t.Fatal(err)
	}
	s.store(s.report, s.acme, "1")
	h, err := s.cache.Holding(t.Context(), s.report)
	if err != nil || h.Answers != 1 || !h.Partial {
		t.Errorf("%+v, %v; want the one that is there, of more than are counted", h, err)
	}
}

func TestOperatorsLookAtAnAnswerWithoutReadingIt(t *testing.T) {
	eachShelf(t, func(s *shelf) {
		key := s.store(s.report, s.acme, "1")
		e, ok, err := s.cache.Inspect(s.Context(), key)
		if err != nil || !ok || e.Key != key || e.Status != 201 || e.ContentType != "text/plain" ||
			e.Size != 10 || e.Age < 10*time.Minute || e.Age > 11*time.Minute ||
			e.Age+e.Left != time.Hour {
			s.Errorf("%+v, %v, %v", e, ok, err)
		}
		long := cache.Answer{Status: 200, ContentType: strings.Repeat("t", cache.MaxContentType),
			Fields: jobs.Fields(strings.Repeat("f", jobs.MaxFields)), Body: make([]byte, 1<<20)}
		key = cache.Key(s.report, "long", nil)
		put(s.T, s.rdb, key, long, time.Hour)
		if e, ok, err := s.cache.Inspect(s.Context(), key); err != nil || !ok ||
			e.ContentType != long.ContentType || e.Size != 1<<20 {
			s.Errorf("%d bytes of type, %d of body, %v, %v", len(e.ContentType), e.Size, ok, err)
		}
		for _, none := range []string{cache.Key(s.report, "", []byte("none")), "", "fb:cache:{}"} {
			if e, ok, err := s.cache.Inspect(s.Context(), none); ok || err != nil {
				s.Errorf("%q: %+v, %v", none, e, err)
			}
		}
		s.rdb.Set(s.Context(), key, "something else", time.Hour)
		if e, ok, err := s.cache.Inspect(s.Context(), key); ok || err == nil {
			s.Errorf("something else: %+v", e)
		}
	})
}

func TestAPurgeRemovesExactlyTheMatchingAnswers(t *testing.T) {
	eachShelf(t, func(s *shelf) {
		type answer struct{ operation, client string }
		answers := []answer{{s.report, s.acme}, {s.report, s.bolt}, {s.summary, s.acme},
			{s.summary, s.core}}
		of := func(a answer) string {
			return cache.Key(a.operation, "client:"+a.client, []byte("1"))
		}
		first := of(answers[0])
		for _, c := range []struct {
			filter cache.Filter
			gone   []answer
		}{
			{cache.Filter{Operation: s.report}, answers[:2]},
			{cache.Filter{Client: s.acme}, []answer{answers[0], answers[2]}},
			{cache.Filter{Operation: s.report, Client: s.acme}, answers[:1]},
			{cache.Filter{Operation: s.summary, Client: s.bolt}, nil},
			{cache.Filter{Operation: "unknown"}, nil},
			{cache.Filter{Client: "unknown"}, nil},
			{cache.Filter{Key: first}, answers[:1]},
			{cache.Filter{Key: first, Operation: s.report, Client: s.acme}, answers[:1]},
			{cache.Filter{Key: first, Operation: s.summary}, nil},
			{cache.Filter{Key: first, Client: s.bolt}, nil},
		} {
			want := map[string]bool{}
			for _, a := range answers {
				want[s.store(a.operation, a.client, "1")] = true
			}
			for _, a := range c.gone {
				want[of(a)] = false
			}
			removed, err := s.cache.Purge(s.Context(), c.filter)
			if removed != len(c.gone) || err != nil {
				s.Errorf("%+v: removed %d, %v; want %d", c.filter, removed, err, len(c.gone))
			}
			s.has(want)
		}
	})
}

// An answer belongs to the client whose request was answered last, whichever clients share it.
func TestASharedAnswerGoesWithTheClientThatItWasGivenTo(t *testing.T) {
	eachShelf(t, func(s *shelf) {
		key := cache.Key(s.report, "", nil)
		give := func(client string, age time.Duration) {
			if err := s.cache.Put(s.Context(), key, cache.Answer{Status: 200, Age: age}, time.Hour,
				cache.Owner{Operation: s.report, Client: client}); err != nil {
				s.Fatal(err)
			}
		}
		give(s.acme, time.Minute)
		give(s.bolt, time.Second)
		give(s.core, time.Hour/2) // too late: a younger one is there
		for client, removed := range map[string]int{s.acme: 0, s.core: 0} {
			if n, err := s.cache.Purge(s.Context(), cache.Filter{Client: client}); n != removed ||
				err != nil {
				s.Errorf("%s: removed %d, %v; want %d", client, n, err, removed)
			}
		}
		if n, err := s.cache.Purge(s.Context(), cache.Filter{Client: s.bolt}); n != 1 ||
			err != nil {
			s.Errorf("removed %d, %v; want bolt's", n, err)
		}
	})
}

func TestAPurgeNeedsAFilter(t *testing.T) {
	t.Parallel()
	s := newShelf(t, redistest.Client(t))
	key := s.store(s.report, s.acme, "1")
	if n, err := s.cache.Purge(t.Context(), cache.Filter{}); n != 0 ||
		!errors.Is(err, cache.ErrNoFilter) {
		t.Errorf("of everything: %d, %v", n, err)
	}
	other := redistest.Name(t, "other")
	s.rdb.Set(t.Context(), other, "1", time.Hour)
	if n, err := s.cache.Purge(t.Context(), cache.Filter{Key: other}); n != 0 || err != nil ||
		s.rdb.Exists(t.Context(), other).Val() != 1 {
		t.Errorf("of a key that is no answer's: %d, %v", n, err)
	}
	s.has(map[string]bool{key: true})
}

// before runs do before the nth command of a client.
type before struct {
	n  int
	do func()
}

func (b *before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.n--; b.n == 0 {
			b.do()
		}
		return next(ctx, cmd)
	}
}

// A purge may come between the two steps of storing an answer, its entry in a list and itself. The
// next purge finds the answer all the same.
func TestAPurgeMeanwhileHidesNoAnswer(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]bool{"of another's answers": false, "of an older answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, others := newShelf(t, redistest.Client(t)), cache.New(redistest.Client(t))
			meanwhile := cache.Filter{Client: s.bolt}
			if older {
				s.store(s.report, s.acme, "1")
				meanwhile.Client = s.acme
			}
			purged := -1
			s.rdb.AddHook(&before{n: 2, do: func() {
				var err error
				if purged, err = others.Purge(t.Context(), meanwhile); err != nil {
					t.Error(err)
				}
			}})
			key := s.store(s.report, s.acme, "1")
			if want := map[bool]int{true: 1}[older]; purged != want {
				t.Errorf("%d were purged meanwhile, want %d", purged, want)
			}
			removed, err := others.Purge(t.Context(), cache.Filter{Client: s.acme})
			if removed != 1 || err != nil {
				t.Errorf("removed %d, %v", removed, err)
			}
			s.has(map[string]bool{key: false})
		})
	}
}

// More answers than one step takes, among them some that don't match.
func TestAPurgeGoesThroughALongList(t *testing.T) {
	t.Parallel()
	s := newShelf(t, redistest.Client(t))
	kept := map[string]bool{}
	const n = 3000
	for i := range n {
		if key := s.store(s.report, s.acme, fmt.Sprint(i)); i%1000 == 0 {
			kept[s.store(s.report, s.bolt, fmt.Sprint(i))] = true
			s.rdb.Del(t.Context(), key)
		}
	}
	if removed, err := s.cache.Purge(t.Context(), cache.Filter{Client: s.acme}); removed != n-3 ||
		err != nil {
		t.Errorf("removed %d, %v; want %d", removed, err, n-3)
	}
	s.has(kept)
}

// Expired answers leave the lists, and the lists expire too.
func TestListsDontGrowForEver(t *testing.T) {
	t.Parallel()
	s := newShelf(t, redistest.Client(t))
	list := cache.ListOf(s.report)
	var old []redis.Z
	for i := range 7 {
		old = append(old,
			redis.Z{Score: float64(i), Member: cache.Key(s.report, "", fmt.Append(nil, i))})
	}
	if err := s.rdb.ZAdd(t.Context(), list, old...).Err(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{4, 2, 3} { // each addition removes four
		s.store(s.report, s.acme, fmt.Sprint(i))
		if n := s.rdb.ZCard(t.Context(), list).Val(); n != want {
			t.Errorf("the list has %d answers, want %d", n, want)
		}
	}
	for _, key := range []string{list, cache.ListOfOperations} {
		if ttl := s.rdb.PTTL(t.Context(), key).Val(); ttl < 50*time.Minute {
			t.Errorf("%s ends in %v: before its answers", key, ttl)
		}
	}
	if ttl := s.rdb.PTTL(t.Context(), list).Val(); ttl > time.Hour {
		t.Errorf("%s ends in %v: long after its answers", list, ttl)
	}
	if _, err := s.cache.Purge(t.Context(), cache.Filter{Operation: s.report}); err != nil {
		t.Fatal(err)
	}
	if ttl := s.rdb.PTTL(t.Context(), cache.PurgedKey).Val(); ttl < 366*24*time.Hour {
		t.Errorf("the purge stays on record for %v: some answers live longer", ttl)
	}
}

// Whichever call fails, and whether it was applied or not: another purge finishes the work, and
// every answer is in a list.
func TestAFailedPurgeDoesNoHarm(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"not applied": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for call := range 4 { // read the list, read the answers, remove, record

				s := newShelf(t, redistest.Client(t))
				faults := redistest.NewFaulty(t, s.rdb)
				key := s.store(s.report, s.acme, "1")
				calls := 0
				faults.FailNext(func(redis.Cmder) bool { calls++; return calls > call }, applied)
				_, failed := s.cache.Purge(t.Context(), cache.Filter{Operation: s.report})
				if failed == nil {
					t.Errorf("call %d fails: no error", call)
				}
				if _, err := cache.New(redistest.Client(t)).Purge(t.Context(),
					cache.Filter{Operation: s.report}); err != nil {
					t.Error(err)
				}
				if n := redistest.Client(t).Exists(t.Context(), key).Val(); n != 0 {
					t.Errorf("call %d failed: the answer is still there", call)
				}
			}
			s := newShelf(t, redistest.Client(t))
			faults := redistest.NewFaulty(t, s.rdb)
			faults.FailNext(redistest.Any, applied)
			key := cache.Key(s.report, "", nil)
			if err := s.cache.Put(t.Context(), key, cache.Answer{Status: 200}, time.Hour,
				cache.Owner{Operation: s.report}); err == nil {
				t.Error("no error where the answer can't be listed")
			}
			s.has(map[string]bool{key: false})
		})
	}
}

func TestOperatorsReachAnswersOnACluster(t *testing.T) {
	t.Parallel()
	rdb, _ := redistest.StartCluster(t)
	s := newShelf(t, rdb)
	want := map[string]bool{}
	for i := range 20 {
		want[s.store(s.report, s.acme, fmt.Sprint(i))] = false
		want[s.store(s.summary, s.bolt, fmt.Sprint(i))] = true
	}
	if h, err := s.cache.Holding(t.Context(), s.report); err != nil || h.Answers != 20 {
		t.Errorf("%+v, %v", h, err)
	}
	if removed, err := s.cache.Purge(t.Context(), cache.Filter{Client: s.acme}); removed != 20 ||
		err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	s.has(want)
	for key, there := range want {
		if e, ok, err := s.cache.Inspect(context.Background(), key); ok != there || err != nil ||
			there && e.Size != 10 {
			t.Errorf("%s: %+v, %v, %v", key, e, ok, err)
		}
	}
}

// Forgetting an answer twice, or an answer that was never there, is no error.
func TestOneAnswerIsForgotten(t *testing.T) {
	eachShelf(t, func(s *shelf) {
		key, other := s.store(s.report, s.acme, "1"), s.store(s.report, s.acme, "2")
		unlisted := cache.Key(s.report, "", []byte("3"))
		put(s.T, s.rdb, unlisted, cache.Answer{Status: 200}, time.Hour)
		for _, gone := range []string{key, key, unlisted, cache.Key(s.report, "", []byte("none"))} {
			if err := s.cache.Forget(s.Context(), gone); err != nil {
				s.Errorf("%s: %v", gone, err)
			}
		}
		s.has(map[string]bool{key: false, unlisted: false, other: true})
	})
}

func TestAFailureToForgetIsReported(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	s := newShelf(t, rdb)
	key := s.store(s.report, s.acme, "1")
	faulty := redistest.NewFaulty(t, rdb)
	for _, command := range []string{"getrange", "unlink", "evalsha"} {
		faulty.FailNext(func(cmd redis.Cmder) bool { return cmd.Name() == command }, false)
		err := s.cache.Forget(t.Context(), key)
		if !errors.Is(err, redistest.ErrNotApplied) {
			t.Errorf("without %s: %v", command, err)
		}
	}
	if err := s.cache.Forget(t.Context(), key); err != nil {
		t.Error(err)
	}
	s.has(map[string]bool{key: false})
}
