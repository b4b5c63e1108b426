package jobs_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/jobs"
)

func TestAnIDNamesItsBackend(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"r", "reports", "a-b-c"} {
		for _, id := range []string{jobs.NewID(backend),
			jobs.DeriveID(backend, "acme", "report", "key")} {
			if got, ok := jobs.ParseID(id); got != backend || !ok {
				t.Errorf("ParseID(%q) = %q, %v; want %q", id, got, ok, backend)
			}
		}
	}
}

// Case C99: An id doesn't reveal when its job was accepted, and has 122 random bits.
func TestIDsThatClientsSeeAreRandom(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(n int) string{
		"fresh": func(int) string { return jobs.NewID("b") },
		"derived": func(n int) string {
			return jobs.DeriveSecretID("secret", "b", "ip:192.0.2.1", "report", fmt.Sprint(n))
		},
	} {
		const many = 1000
		ones, before, later := [16]int{}, "", 0
		for n := range many {
			id := next(n)
			if id > before {
				later++
			}
			before = id
			bytes, ok := jobs.IDBytes(id)
			if u := uuid.UUID(bytes); !ok || u.Version() != 4 || u.Variant() != uuid.RFC4122 ||
				!jobs.Random(id) {
				t.Fatalf("%s: %s isn't a random UUID", name, id)
			}
			for i, b := range bytes {
				ones[i] += int(b & 1)
			}
		}
		if later < many/4 || later > 3*many/4 {
			t.Errorf("%s: %d of %d come after the one before", name, later, many)
		}
		for i, n := range ones { // the lowest bit of every byte is random
			if n < many/4 || n > 3*many/4 {
				t.Errorf("%s: byte %d is odd in %d of %d", name, i, n, many)
			}
		}
	}
	if jobs.Random(jobs.DeriveID("b", "acme", "report", "key")) ||
		jobs.Random("b-01a22d94-f8bf-7ec8-b220-c5ff2705f7e0") || jobs.Random("b-1") {
		t.Error("an id that can be guessed counts as random")
	}
}

func TestAnIDDerivedWithASecretNeedsTheSecret(t *testing.T) {
	t.Parallel()
	of := func(secret, client string) string {
		return jobs.DeriveSecretID(secret, "b", client, "report", "key")
	}
	if first, again := of("one", "ip:a"), of("one", "ip:a"); first != again {
		t.Errorf("the same parts have two ids: %s and %s", first, again)
	}
	if of("one", "ip:a") == of("two", "ip:a") || of("one", "ip:a") == of("one", "ip:b") {
		t.Error("secret and client don't matter")
	}
}

func TestAMalformedIDIsRefused(t *testing.T) {
	t.Parallel()
	good := jobs.NewID("b")
	for _, bad := range []string{"", "b", "b-", good[1:], good + "x", strings.ToUpper(good),
		"b-{" + good[2:] + "}", "b" + good[2:], "-" + good[2:], good[2:],
		strings.Replace(good, "-", "_", 1), good + "\n", strings.Repeat("x", 1<<20)} {
		if backend, ok := jobs.ParseID(bad); ok {
			t.Errorf("ParseID(%.60q) = %q, true", bad, backend)
		}
	}
}

// Lists of one backend's jobs use the 16 bytes of their UUIDs. A text that is no job id has none.
func TestAnIDsBytesAreThoseOfItsUUID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{jobs.NewID("a-b"), jobs.DeriveID("r", "acme", "report", "key")} {
		got, ok := jobs.IDBytes(id)
		if want := uuid.MustParse(id[len(id)-36:]); !ok || got != [16]byte(want) {
			t.Errorf("%s: %x, %v", id, got, ok)
		}
	}
	for _, id := range []string{"", "b-1", "01a22d94-f8bf-7ec8-b220-c5ff2705f7e0",
		"b-01A22D94-f8bf-7ec8-b220-c5ff2705f7e0"} {
		if got, ok := jobs.IDBytes(id); ok {
			t.Errorf("%q: %x", id, got)
		}
	}
}

// Case C47.
//
// No two triples of client, operation and key share an id, however the letters are split up.
func TestDerivedIDsNeverMeet(t *testing.T) {
	t.Parallel()
	triple := func(t *rapid.T, name string) [3]string {
		part := rapid.StringMatching(`[12:x]{0,3}`)
		return [3]string{part.Draw(t, name), part.Draw(t, name), part.Draw(t, name)}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := triple(t, "a"), triple(t, "b")
		same := jobs.DeriveID("r", a[0], a[1], a[2]) == jobs.DeriveID("r", b[0], b[1], b[2])
		if same != (a == b) {
			t.Fatalf("%q and %q: same id %v", a, b, same)
		}
	})
}

// stored is a record as the offer script writes it.
func stored(t interface{ Fatal(...any) }, j jobs.Job, at jobs.Times) []byte {
	rest, err := jobs.EncodeRecord(j)
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("%d %d %d %d 0123456789abcdef ", at.Accepted.UnixMicro(),
		at.StartBy.UnixMicro(), at.EndBy.UnixMicro(), at.Keep.Milliseconds())
	return append([]byte(head), rest...)
}

func TestARecordHasAllOfTheJob(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(rapid.Int64Range(1, 1<<52).Draw(t, "now"))
		j := jobs.Job{
			ID: jobs.NewID("b"), Operation: "report",
			Client: rapid.StringMatching(`(ip:)?[a-z0-9:./-]{1,60}`).Draw(t, "client"),
			Tier:   "free",
			Priority: rapid.SampledFrom(
				[]jobs.Priority{jobs.High, jobs.Normal, jobs.Low}).Draw(t, "priority"),
			Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Traceparent: rapid.SampledFrom([]string{"",
				"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).Draw(t, "traceparent"),
			Fingerprint: rapid.StringMatching(`[0-9a-f]{0,64}`).Draw(t, "fingerprint"),
			Weight:      rapid.SampledFrom([]float64{1, 0.25, 12, 1e-9}).Draw(t, "weight"),
		}
		if rapid.Bool().Draw(t, "calls back") {
			j.Callback = "https://example.org/?" +
				rapid.StringMatching(`[a-z&=<>"\\%/]{0,400}`).Draw(t, "callback")
		}
		for range rapid.IntRange(0, jobs.MaxHolds).Draw(t, "permits") {
			j.Holds.Member = j.ID + "~12345678"
			key := rapid.StringMatching(
				`fb:\{[0-9a-f]{32}\}:limit:[a-z][a-z0-9-]{0,63}:[0-9a-f]{32}`)
			j.Holds.Keys = append(j.Holds.Keys, key.Draw(t, "key"))
		}
		at := jobs.Times{Accepted: now, StartBy: now.Add(time.Second), EndBy: now.Add(time.Hour),
			Keep: 90 * time.Minute}
		record := stored(t, j, at)
		// As the offer script writes them.
		mark := rapid.SampledFrom([]string{"", "& ",
			"=b-01a22d94-f8bf-7ec8-b220-c5ff2705f7e0 "}).Draw(t, "mark")
		if before, rest, _ := bytes.Cut(record, []byte("0123456789abcdef ")); mark != "" {
			record = slices.Concat(before, []byte("0123456789abcdef "+mark), rest)
		}
		j.Shared = mark == "& "
		source := j.ID
		if of, subscribed := strings.CutPrefix(mark, "="); subscribed {
			j.Of = strings.TrimSpace(of)
			source = j.Of
		}
		if j.Source() != source {
			t.Fatalf("its source is %s, want %s", j.Source(), source)
		}
		got, times, err := jobs.DecodeRecord(j.ID, record)
		if err != nil {
			t.Fatal(err)
		}
		j.CreatedAt = now
		if !bytes.Equal(got.Payload, j.Payload) {
			t.Fatalf("payload %q became %q", j.Payload, got.Payload)
		}
		got.Payload, j.Payload = nil, nil
		if diff := cmp.Diff(j, got) + cmp.Diff(at, times); diff != "" {
			t.Fatal(diff)
		}
		// The look script reads at most 2.5 KiB of it. Scripts that end the job look for its marks
		// in the first 1 KiB.
		if end := bytes.IndexByte(record, '\n'); end >= 2560 {
			t.Fatalf("the metadata ends at byte %d", end)
		}
		if bytes.Index(record, []byte(` {"o"`)) >= 1024 {
			t.Fatalf("the metadata begins too late: %q", record[:min(len(record), 1500)])
		}
	})
}

func TestAJobThatFitsNoRecordIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := jobs.EncodeRecord(jobs.Job{ID: jobs.NewID("b"),
		Client: strings.Repeat("c", 1000)}); err == nil {
		t.Fatal("a client's name of 1,000 bytes was encoded")
	}
	if _, err := jobs.EncodeRecord(jobs.Job{ID: jobs.NewID("b"), Callback: "https://example.org/" +
		strings.Repeat("c", 500)}); err == nil {
		t.Fatal("a callback of 520 bytes was encoded")
	}
	for _, keys := range [][]string{make([]string, jobs.MaxHolds+1), {"a b"}, {"a@b"}} {
		if _, err := jobs.EncodeRecord(jobs.Job{ID: jobs.NewID("b"),
			Holds: jobs.Holds{Member: "m", Keys: keys}}); err == nil {
			t.Errorf("permits %q were encoded", keys)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	now := time.UnixMicro(1796024095000000)
	f.Add(stored(f, jobs.Job{ID: jobs.NewID("b"), Payload: []byte("{}")},
		jobs.Times{Accepted: now, StartBy: now, EndBy: now}))
	f.Add(stored(f, jobs.Job{ID: jobs.NewID("b"), Callback: "https://example.org/?a&b",
		Holds: jobs.Holds{Member: "m", Keys: []string{"k"}}}, jobs.Times{}))
	f.Add([]byte("1 2 3 4 ff {}\n"))
	f.Add([]byte("1 2 3 4 ff =b-1 ! {}\n"))
	f.Add([]byte("1 2 3 4 ff & "))
	f.Add([]byte("1 2 3 4"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := jobs.DecodeRecord("b-1", data); err == nil &&
			!bytes.Contains(data, []byte("\n")) {
			t.Fatal("a record whose metadata doesn't end was read")
		}
	})
}

func TestClientsSeeSixStates(t *testing.T) {
	t.Parallel()
	for state, want := range map[jobs.State]struct {
		public string
		final  bool
	}{
		jobs.Waiting: {"queued", false}, jobs.Delayed: {"queued", false},
		jobs.Released: {"queued", false},
		jobs.Running:  {"running", false}, jobs.Succeeded: {"succeeded", true},
		jobs.Failed:   {"failed", true},
		jobs.Canceled: {"canceled", true}, jobs.Expired: {"expired", true},
	} {
		if state.Public() != want.public || state.Final() != want.final {
			t.Errorf("%s: public %q, final %v; want %q, %v", state, state.Public(), state.Final(),
				want.public, want.final)
		}
	}
}
