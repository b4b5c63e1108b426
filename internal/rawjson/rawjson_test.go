package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forebay/forebay/internal/rawjson"
)

// A value comes back byte for byte, case C97's numbers included.
func TestMembersComeByteForByte(t *testing.T) {
	t.Parallel()
	s := rawjson.Scan([]byte(" {\t\"a\" : 616581622363398142 ," +
		"\"b\\\"}\":{ \"x\":[1e400,\"\\\\\\\"]\"] }," +
		"\n\"c\\u0061\":\"\xff\" , \"\":null\n} "))
	type member struct {
		name, value string
		depth       int
	}
	want := []member{{"a", "616581622363398142", 0}, {`b"}`, `{ "x":[1e400,"\\\"]"] }`, 2},
		{"ca", "\"\xff\"", 0}, {"", "null", 0}}
	var got []member
	for s.Next() {
		name := s.Name()
		value, depth := s.Value()
		got = append(got, member{name, string(value), depth})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+q, want %+q", fmt.Sprint(got), fmt.Sprint(want))
	}
	for _, empty := range []string{"{}", " [ ] ", "{ }", "[]"} {
		if s := rawjson.Scan([]byte(empty)); s.Next() {
			t.Errorf("%q has a member", empty)
		}
	}
}

func TestAPointerFindsItsValue(t *testing.T) {
	t.Parallel()
	const none = "nothing"
	for _, c := range []struct{ text, pointer, want string }{
		{` {"a":1} `, "", `{"a":1}`}, {` 7 `, "", `7`}, {` "x" `, "", `"x"`},
		{`{ "a" : [1, {"b":9.10}] , "p" : 7 }`, "/a/1/b", `9.10`},
		{`{"a":{"b":[ 5 , 6 ]}}`, "/a/b/1", `6`},
		{`[3]`, "/0", `3`}, {"\n[ {} ]", "/0", `{}`},
		{`{"a/b":{"c~d":{"ü":4}}}`, "/a~1b/c~0d/ü", `4`}, {`{"~1":4}`, "/~01", `4`},
		{`{"":4}`, "/", `4`}, {`{"p\u0061ges":7}`, "/pages", `7`},
		{`{"a":null}`, "/a", `null`},
		{`{"x":1,"x":2,"a":3}`, "/a", `3`}, // a duplicate, but of another name
		{`{}`, "/a", none}, {`[]`, "/a", none}, {`1`, "/a", none}, {`"a"`, "/a", none},
		{`null`, "/a", none}, {`{"a":null}`, "/a/b", none},
		{`{"a":1}`, "/a/b", none}, {`{"b":9}`, "/a/b", none}, {`{"1":9}`, "/0", none},
		{`[9,9]`, "/2", none}, {`[9]`, "/-", none}, {`[9,9]`, "/01", none}, {`[9]`, "/x", none},
		{`[9]`, "/", none}, {`[9,9]`, "/+1", none},
		{`[9]`, "/99999999999999999999", none},
	} {
		value, err := rawjson.Find([]byte(c.text), c.pointer)
		got := string(value)
		if value == nil {
			got = none
		}
		if got != c.want || err != nil {
			t.Errorf("%s of %s: %s, %v; want %s", c.pointer, c.text, got, err, c.want)
		}
	}
}

func TestAnAmbiguousPointerIsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, pointer, name, given string }{
		{`{"a":1,"a":1}`, "/a", "a", "a"}, {`{"a":1,"\u0061":2}`, "/a", "a", "a"},
		{`{"a":1,"a":null}`, "/a", "a", "a"},
		{`{"a":1,"A":2}`, "/a", "a", "A"}, {`{"A":2}`, "/a", "a", "A"}, {`{"ſ":2}`, "/s", "s", "ſ"},
		{`{"a":{"b":1},"a":{"b":2}}`, "/a/b", "a", "a"}, {`[{"b":1,"b":1}]`, "/0/b", "b", "b"},
	} {
		value, err := rawjson.Find([]byte(c.text), c.pointer)
		twoWays, ok := errors.AsType[*rawjson.Ambiguous](err)
		if value != nil || !ok || twoWays.Name != c.name || twoWays.Given != c.given ||
			!strings.Contains(err.Error(), c.given) {
			t.Errorf("%s of %s: %s, %v", c.pointer, c.text, value, err)
		}
	}
}

func TestOnlyStringsAreTexts(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{`"a"`: "a", `""`: "", `"\u00fc\n"`: "ü\n",
		`"\""`: `"`} {
		if got, ok := rawjson.Text([]byte(value)); !ok || got != want {
			t.Errorf("%s: %q, %v", value, got, ok)
		}
	}
	for _, value := range []string{`1`, `null`, `true`, `["a"]`, `{"a":"b"}`} {
		if got, ok := rawjson.Text([]byte(value)); ok {
			t.Errorf("%s: %q", value, got)
		}
	}
	if !rawjson.IsObject([]byte("\n {}")) || rawjson.IsObject([]byte(" []")) ||
		rawjson.IsObject([]byte(`"{"`)) {
		t.Error("IsObject misjudges an object, an array or a string")
	}
}

// For any text, a value found equals encoding/json's, in the text's own bytes.
func FuzzFind(f *testing.F) {
	for _, text := range []string{`{"a":{"n":3}}`, `{"a":[{"n":1}]}`, ` [ ] `,
		`{"a":{"n":1,"n":2}}`, `{"A":1}`, `"a"`, `{"a":{"\u006e":"\\\""}}`, "7"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		for _, pointer := range []string{"", "/a", "/a/n", "/0", "/a/0/n"} {
			value, err := rawjson.Find(text, pointer)
			if err != nil {
				continue
			}
			var want any
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber()
			if err := d.Decode(&want); err != nil {
				return // nested deeper than encoding/json reads
			}
			there := true
			for _, step := range strings.Split(pointer, "/")[1:] {
				switch in := want.(type) {
				case map[string]any:
					want, there = in[step]
				case []any:
					if there = step == "0" && len(in) > 0; there {
						want = in[0]
					}
				default:
					there = false
				}
				if !there {
					break
				}
			}
			if there != (value != nil) || there && !bytes.Contains(text, value) {
				t.Fatalf("%s of %q: %q, want %v", pointer, text, value, want)
			}
			if !there {
				continue
			}
			var got any
			d = json.NewDecoder(bytes.NewReader(value))
			d.UseNumber()
			if err := d.Decode(&got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s of %q: %q, want %v", pointer, text, value, want)
			}
		}
	})
}
