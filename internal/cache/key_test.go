package cache_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/forebay/forebay/internal/cache"
)

func key(payload string) string { return cache.Key("report", "client:acme", []byte(payload)) }

func TestOrderAndWhiteSpaceDontMatter(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, "\n{ \"b\"\t: 2 ,\r\n \"a\" : 1 } "},
		{`{"a":{"x":[1,{"p":1,"q":2}],"y":"s p"}}`, `{ "a": {"y":"s p", "x":[1, {"q":2,"p":1}]}}`},
		{`{}`, ` { } `}, {`[]`, `[ ]`}, {`7`, " 7\n"},
		{`{"a\"}":1,"{":2}`, `{"{":2,"a\"}":1}`},
	} {
		for _, payload := range same[1:] {
			if key(payload) != key(same[0]) {
				t.Errorf("%q and %q have different keys", payload, same[0])
			}
		}
	}
}

// Case C97: a decoder that parses floats would take some of these for equal.
func TestSpellingMatters(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, payload := range []string{
		`1`, `1.0`, `1e0`, `100`, `1e2`, `1E2`, `1.1`, `1.10`, `-0`, `0`, `1e400`, `1e401`, `10`,
		`616581622363398142`, `616581622363398143`, `9007199254740993`, `9007199254740992`,
		`"1"`, `"a"`, `"A"`, `"\u0061"`, `"a "`, `" a"`, `""`, `null`, `"null"`, `true`, `false`,
		`[]`, `{}`, `[1,2]`, `[2,1]`, `[[1],2]`, `[[1,2]]`, `[12]`, `[null]`,
		`{"a":1}`, `{"A":1}`, `{"a":1.0}`, `{"a":null}`, `{"a":{"b":1}}`, `{"a":1,"b":1}`,
		`{"\u0061":1}`, `{"":1}`,
		// the backend decides which of two counts
		`{"a":1,"a":2}`, `{"a":2,"a":1}`, `{"a":2}`, `{"a":1,"a":1}`,
	} {
		if other, ok := seen[key(payload)]; ok {
			t.Errorf("%s and %s share a key", payload, other)
		}
		seen[key(payload)] = payload
	}
}

func TestWhatIsNotJSONStandsForItsBytes(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, payload := range []string{"", " ", "x", "x ", "{", `{"a":1,}`, `{"a":1} {}`, `{"a":1}}`,
		"\x00", "\xff", "01"} {
		if json.Valid([]byte(payload)) {
			t.Fatalf("%q is JSON", payload)
		}
		if other, ok := seen[key(payload)]; ok {
			t.Errorf("%q and %q share a key", payload, other)
		}
		seen[key(payload)] = payload
	}
}

// Case C47: parts joined without a separator would share a key.
func TestPartsOfAKeyDontRunIntoEachOther(t *testing.T) {
	t.Parallel()
	seen := map[string][3]string{}
	for _, parts := range [][3]string{
		{"11", "2x", "1"}, {"1", "12x", "1"}, {"112x", "", "1"}, {"", "112x", "1"},
		{"11", "2x1", ""}, {"11", "2", "x1"},
		{"a", "client:b", "1"}, {"a", "tier:b", "1"}, {"a", "", "1"}, {"aclient:b", "", "1"},
		{"a\x00", "client:b", "1"},
	} {
		k := cache.Key(parts[0], parts[1], []byte(parts[2]))
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q share a key", parts, other)
		}
		seen[k] = parts
	}
}

func TestAKeyHoldsNoPayloadAndOneClusterSlot(t *testing.T) {
	t.Parallel()
	if k := key(`"secret"`); !regexp.MustCompile(`^fb:cache:\{[0-9a-f]{32}\}$`).MatchString(k) {
		t.Errorf("key %q", k)
	}
}

func TestMembersOfOneNameKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var as, bs, mixed []string
	for i := range 50 { // many: a short list may be sorted stably by chance
		a, b := fmt.Sprintf(`"a":%d`, i), fmt.Sprintf(`"b":%d`, i)
		as, bs, mixed = append(as, a), append(bs, b), append(mixed, b, a)
	}
	object := func(members ...string) string { return "{" + strings.Join(members, ",") + "}" }
	want := key(object(slices.Concat(as, bs)...))
	if key(object(slices.Concat(bs, as)...)) != want || key(object(mixed...)) != want {
		t.Error("the order of other members matters")
	}
	as[20], as[30] = as[30], as[20]
	if key(object(slices.Concat(as, bs)...)) == want {
		t.Error("their own order doesn't matter")
	}
}

func TestTheDigestOfAnObjectDoesntPassForIt(t *testing.T) {
	t.Parallel()
	payload := `{"a":"` + strings.Repeat("long", 20) + `"}`
	digest := string(cache.Canonical([]byte(payload)))
	if len(digest) != 33 {
		t.Fatalf("canonical text %q", digest)
	}
	if key(digest) == key(payload) || key(`"`+digest+`"`) == key(`"`+payload+`"`) {
		t.Error("a payload that is another one's digest shares its key")
	}
}

func TestDeepNestingIsNoCrash(t *testing.T) {
	t.Parallel()
	for _, deep := range []string{
		strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000),
		strings.Repeat(`{"a":`, 9_999) + `1` + strings.Repeat(`}`, 9_999),
		strings.Repeat(`[`, 1_000_000) + strings.Repeat(`]`, 1_000_000),
		strings.Repeat(`{"a":`, 1_000_000),
	} {
		if key(deep) == key(deep+"]") {
			t.Error("deep payloads share a key")
		}
	}
	sorted := strings.Repeat(`{"a":1,"b":`, 9_999) + `1` + strings.Repeat(`}`, 9_999)
	if key(sorted) != key(strings.Repeat(`{"b":`, 9_999)+`1`+strings.Repeat(`,"a":1}`, 9_999)) {
		t.Error("order matters at depth")
	}
}

// Moving a long inner text once per level would take 10 GiB for a hostile payload of 1 MiB. So no
// level passes on more than a short object would.
func TestALongObjectIsNotCarriedThroughTheLevelsAroundIt(t *testing.T) {
	t.Parallel()
	inner := `{"p":"` + strings.Repeat("p", 1<<10) + `"}`
	for range 100 {
		inner = `{"b":` + inner + `,"a":1}`
		if text := cache.Canonical([]byte(`[` + inner +
			`]`)); len(text) > cache.MaxInline+len("[]") {
			t.Fatalf("%d bytes are passed on", len(text))
		}
	}
}

// tree is a JSON value: the text of a scalar, an array (names is nil), or an object (a name per
// item).
type tree struct {
	scalar string
	names  []string
	items  []tree
}

func drawTree(t *rapid.T, depth int) tree {
	kinds := []string{"scalar", "array", "object"}
	if depth == 0 {
		kinds = kinds[:1]
	}
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "array":
		items := make([]tree, rapid.IntRange(0, 3).Draw(t, "items"))
		for i := range items {
			items[i] = drawTree(t, depth-1)
		}
		return tree{items: items}
	case "object":
		n := rapid.IntRange(0, 4).Draw(t, "members")
		names, items := make([]string, n), make([]tree, n)
		for i := range n {
			names[i] = rapid.SampledFrom([]string{`"a"`, `"b"`, `"ab"`, `""`, `"\""`, `"}"`,
				`"\\"`}).Draw(t, "name")
			items[i] = drawTree(t, depth-1)
		}
		return tree{names: names, items: items}
	}
	return tree{scalar: rapid.SampledFrom([]string{
		`1`, `1.0`, `true`, `null`, `""`, `"a"`, `","`, `"\\"`, `"{\"a\":1}"`,
		`"` + strings.Repeat("long", 20) + `"`,
	}).Draw(t, "scalar")}
}

// render writes a tree with its members sorted by name. With space, it draws white space and, for
// objects, another order, in which members of the same name keep theirs.
func render(t *rapid.T, v tree, space func() string) string {
	if v.items == nil {
		return v.scalar
	}
	order := make([]int, len(v.items))
	for i := range order {
		order[i] = i
	}
	if v.names != nil {
		if space != nil {
			order = rapid.Permutation(order).Draw(t, "order")
			// Members of the same name keep their positions in common, and are put in order.
			for _, name := range v.names {
				var at, which []int
				for place, i := range order {
					if v.names[i] == name {
						at, which = append(at, place), append(which, i)
					}
				}
				slices.Sort(which)
				for k, place := range at {
					order[place] = which[k]
				}
			}
		} else {
			slices.SortStableFunc(order, func(a, b int) int {
				return strings.Compare(v.names[a], v.names[b])
			})
		}
	}
	gap := func() string { return "" }
	if space != nil {
		gap = space
	}
	var out []string
	for _, i := range order {
		item := gap() + render(t, v.items[i], space) + gap()
		if v.names != nil {
			item = gap() + v.names[i] + gap() + ":" + item
		}
		out = append(out, item)
	}
	if v.names != nil {
		return "{" + strings.Join(out, ",") + gap() + "}"
	}
	return "[" + strings.Join(out, ",") + gap() + "]"
}

// The reference: two payloads share a key exactly when their plain canonical texts are equal.
func TestPayloadsShareAKeyExactlyWhenTheySayTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		space := func() string {
			return rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r"}).Draw(t, "space")
		}
		a, b := drawTree(t, 4), drawTree(t, 4)
		plainA, plainB := render(t, a, nil), render(t, b, nil)
		if respelled := render(t, a, space); key(respelled) != key(plainA) {
			t.Fatalf("other order and space, other key:\n%s\n%s", respelled, plainA)
		}
		if (key(plainA) == key(plainB)) != (plainA == plainB) {
			t.Fatalf("one key for what differs:\n%s\n%s", plainA, plainB)
		}
	})
}

func FuzzKey(f *testing.F) {
	for _, payload := range []string{`{"b":[1,{"d":1,"c":2}],"a":"\"}"}`, `{"a":1,"a":2}`, `"\\"`,
		`1e400`, `{`, ``, "\x00"} {
		f.Add([]byte(payload), []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		keyA, keyB := cache.Key("o", "", a), cache.Key("o", "", b)
		if bytes.Equal(a, b) != (keyA == keyB) && !(json.Valid(a) && json.Valid(b)) {
			t.Errorf("bytes %q and %q: keys %s and %s", a, b, keyA, keyB)
		}
		var compact bytes.Buffer
		if json.Compact(&compact, a) == nil && cache.Key("o", "", compact.Bytes()) != keyA {
			t.Errorf("%q has another key without white space", a)
		}
		if json.Valid(a) { // within an object it still counts, byte for byte
			wrapped := cache.Key("o", "", slices.Concat([]byte(`{"z":1,"a":`), a, []byte(`}`)))
			if wrapped == keyA || wrapped != cache.Key("o", "",
				slices.Concat([]byte(`{"a":`), a, []byte(`,"z":1}`))) {
				t.Errorf("%q within an object", a)
			}
		}
	})
}

func BenchmarkKey(b *testing.B) {
	payload := []byte(`{"month":"2026-11","customer":"` + strings.Repeat("c", 200) + `","page":1}`)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		cache.Key("report", "client:acme", payload)
	}
}

// With pointers, only the values that they point to count. A missing value is not the same as null.
func TestPointersSelectThePartsThatCount(t *testing.T) {
	t.Parallel()
	pointers := []string{"/month", "/filter/0"}
	of := func(payload string) string {
		return cache.Key("report", "", []byte(payload), pointers...)
	}
	for _, same := range [][]string{
		{`{"month":11,"trace":"a"}`, `{"trace":"b","month":11}`, ` { "month" : 11 } `,
			`{"month":11,"filter":[]}`, `{"month":11,"filter":{"1":7}}`,
			`{"month":11,"trace":1,"trace":2}`}, // a duplicate, but of no pointer
		{`{"month":11,"filter":[{"a":1,"b":2},3]}`, `{"filter":[ {"b":2, "a":1} ],"month":11}`},
	} {
		for _, payload := range same[1:] {
			if of(payload) != of(same[0]) {
				t.Errorf("%s and %s have different keys", payload, same[0])
			}
		}
	}
	seen := map[string]string{}
	for _, payload := range []string{
		`{}`, `{"month":null}`, `{"month":""}`, `{"month":11}`, `{"month":11.0}`, `{"month":"11"}`,
		`{"month":{}}`, `{"filter":[11]}`, `{"month":11,"filter":[null]}`,
		// No pointer applies: the whole payload counts.
		`[]`, `7`, `"month"`, `{"trace":null}`,
		// Ambiguous: the whole payload counts.
		`{"month":11,"month":12}`, `{"month":12,"month":11}`, `{"month":11,"month":11}`,
		`{"month":11,"Month":12}`, `{"Month":11}`, `{"month":11,"Month":12,"trace":1}`,
		// Not JSON: its bytes count.
		``, `{"month":11`, `{"month":11,}`,
	} {
		if other, ok := seen[of(payload)]; ok {
			t.Errorf("%s and %s share a key", payload, other)
		}
		seen[of(payload)] = payload
	}
	if cache.Key("report", "", []byte(`{"month":11}`)) == of(`{"month":11}`) ||
		cache.Key("report", "", []byte(`{"a":1}`), "/a") ==
			cache.Key("report", "", []byte(`{"b":1}`), "/b") {
		t.Error("the pointers themselves don't count")
	}
	if cache.Key("report", "", []byte(`{"a":[1]}`), "") ==
		cache.Key("report", "", []byte(`{"a":[2]}`), "") {
		t.Error("a pointer to the whole doesn't count the whole")
	}
}

func TestAKeyIsKnownByItsForm(t *testing.T) {
	t.Parallel()
	k := key(`1`)
	if !cache.IsKey(k) {
		t.Errorf("%s is none", k)
	}
	for _, other := range []string{"", "fb:cache:", strings.ToUpper(k), k + "}", k[:len(k)-1],
		strings.Replace(k, "{", "{0", 1), "fb:cache:{index}:purged", "fb:{reports}:line"} {
		if cache.IsKey(other) {
			t.Errorf("%s is one", other)
		}
	}
}
