package jobs

import (
	"iter"
	"net/http"
	"strings"
)

// Fields are the fields of a backend's answer that its result carries, beside its type: a line "Name: value" each, at most MaxFields
// bytes in all. "" holds none.
type Fields string

// MaxFields bounds the bytes of Fields, which are read with each look at their job: room for a file's name of 255 bytes in both of its
// forms, and more.
const MaxFields = 1 << 10

// keptFields are the names, those first without which the bytes can't be read. Fields of the connection, of caches and of the caller's
// session (Set-Cookie) aren't the result's.
var keptFields = []string{"Content-Encoding", "Content-Disposition", "Content-Language", "Etag", "Last-Modified", "Location", "Link"}

// FieldsOf picks them from an answer's head. left names those that aren't kept: they don't fit any more, or have control characters.
func FieldsOf(h http.Header) (kept Fields, left []string) {
	var b strings.Builder
	for _, name := range keptFields {
		values := h[name]
		if name != "Link" { // the only one that may stand in several lines; of the others a client would believe none, or any
			values = values[:min(len(values), 1)]
		}
		for _, value := range values {
			if value == "" {
				continue
			}
			line := name + ": " + value + "\n"
			if strings.ContainsFunc(value, isControl) || b.Len()+len(line) > MaxFields {
				left = append(left, name)
				continue
			}
			b.WriteString(line)
		}
	}
	return Fields(b.String()), left
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// All goes through names, as http.CanonicalHeaderKey has them, and values. A name may come twice.
func (f Fields) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for line := range strings.Lines(string(f)) {
			name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			if ok && !yield(name, value) {
				return
			}
		}
	}
}

// Map has each name's value; the values of one that came twice are joined by ", ". nil: there is none.
func (f Fields) Map() map[string]string {
	var m map[string]string
	for name, value := range f.All() {
		if m == nil {
			m = make(map[string]string)
		}
		if before, ok := m[name]; ok {
			value = before + ", " + value
		}
		m[name] = value
	}
	return m
}
