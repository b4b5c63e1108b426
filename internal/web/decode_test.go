package web

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// What Members reads is what encoding/json reads, where that reads it at all: the same names, and
// values byte for byte.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"\u0061":"\\"}`, `[1]`, `1`, `"x"`, `null`, `{"a":1}{}`,
		`{"operation":"x","payload":{"a":[1,{"b":"}\""}]},"priority":null}`,
		`{"a":1,"a":2}`, `{"a":[[[[]]]]}`,
		`{"a": -1.5e+3 , "b" :true}`, "{\"a\":\"\xff\"}", `{"":{}}`, `{"a":"\ud800"}`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := Members(body)
		if err != nil {
			return
		}
		if !utf8.Valid(body) || !json.Valid(body) {
			t.Fatalf("%q was read", body)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q was read, but %v", body, err)
		}
		have := map[string]json.RawMessage{}
		for _, m := range got {
			have[m.Name] = m.Value
		}
		same := len(have) == len(got) && len(got) == len(want)
		if !same || len(got) > 0 && !reflect.DeepEqual(have, want) {
			t.Fatalf("%q: %v, want %v", body, got, want)
		}
	})
}
