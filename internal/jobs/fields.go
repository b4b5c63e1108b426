package jobs

import (
	"iter"
	"net/http"
	"strings"
)

// Fields are the header fields of a backend's answer that are kept with its result, beside the
// content type, as lines "Name: value" of at most MaxFields bytes in all.
type Fields string

// MaxFields bounds the bytes of Fields, which each look at their job reads. There is room for a
// file name of 255 bytes in both of its forms, and more.
const MaxFields = 1 << 10

// keptFields are the names of kept fields, with those first that are needed to read the result's
// bytes. Fields of the connection, of caches and of the caller's session (Set-Cookie) don't belong
// to the result.
var keptFields = []string{"Content-Encoding", "Content-Disposition", "Content-Language", "Etag",
	"Last-Modified", "Location", "Link"}

// FieldsOf returns the fields of an answer's header that are kept. left names those that aren't,
// because they don't fit any more or have control characters.
func FieldsOf(h http.Header) (kept Fields, left []string) {
	var b strings.Builder
	for _, name := range keptFields {
		values := h[name]
		if name != "Link" { // the only one that may have several lines
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

// All yields names, in the form of http.CanonicalHeaderKey, and values. A name may come twice.
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

// Map returns the value of each name. The values of a name that came twice are joined by ", ". It
// returns nil if there are no fields.
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
