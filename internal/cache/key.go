package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/forebay/forebay/internal/rawjson"
)

// Key names the stored answer to one request: an operation's payload within a sharing scope. The
// scope "" is all clients.
//
// Two JSON payloads share a key exactly when they differ only in white space and in the order of an
// object's members. Numbers and strings count as they are spelled: 1.0 is not 1, and "\u0061" is
// not "a". Members of the same name keep their order. A backend may distinguish all of these, so
// they must never share an answer. A payload that is not JSON, or that nests deeper than
// encoding/json reads (10,000 levels), is hashed byte for byte.
//
// With pointers (JSON Pointers, RFC 6901), only the values that they point to count, in the same
// way. A missing value is distinct from null. If a pointer can be resolved in two ways
// (rawjson.Ambiguous), the backend's reading of it is unknown, and the whole payload counts.
//
// Each part is hashed with its length, so no two lists of parts are hashed alike. Key takes time
// O(n log n) for any payload, and O(n) more for each step of a pointer.
func Key(operation, scope string, payload []byte, pointers ...string) string {
	h := sha256.New()
	var length [8]byte
	write := func(part []byte) {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	write([]byte(operation))
	write([]byte(scope))
	// The form is hashed too: bytes that only look like a canonical text must not count as one.
	if !json.Valid(payload) {
		write([]byte("bytes"))
		write(payload)
	} else if parts, ok := pick(payload, pointers); ok {
		write([]byte("parts"))
		for _, part := range parts {
			write(part)
		}
	} else {
		write([]byte("json"))
		write(canonical(payload))
	}
	// 128 bits: finding two payloads with one key takes 2^64 tries. The braces keep the key in one
	// cluster slot.
	return keyBegin + hex.EncodeToString(h.Sum(nil)[:keyBytes]) + keyEnd
}

const (
	keyBegin, keyEnd = "fb:cache:{", "}"
	keyBytes         = 16
)

// IsKey reports whether Key could have made the text. Operators give keys as text, which must not
// name another key of Redis.
func IsKey(text string) bool {
	digits, begins := strings.CutPrefix(text, keyBegin)
	digits, ends := strings.CutSuffix(digits, keyEnd)
	return begins && ends && len(digits) == 2*keyBytes &&
		strings.Trim(digits, "0123456789abcdef") == ""
}

// pick returns each pointer and the canonical text of its value, which is empty if there is no
// value. ok is false if the whole payload counts: it has none of the values, or one of the pointers
// is ambiguous.
func pick(payload []byte, pointers []string) (parts [][]byte, ok bool) {
	some := false
	for _, pointer := range pointers {
		value, err := rawjson.Find(payload, pointer)
		if err != nil {
			return nil, false
		}
		some = some || value != nil
		parts = append(parts, []byte(pointer), canonical(value))
	}
	return parts, some
}

// maxInline is the longest object that stays spelled out within its parent; a longer one is
// replaced by its digest. So no byte is moved once per level, and hostile nesting costs no more
// than a flat payload. A digest is 33 bytes: a smaller bound would save nothing.
const maxInline = 64

// bracket is an open [ or {.
type bracket struct {
	start  int // offset in the output
	first  int // index of an object's first member
	object bool
}

// member is one name and value of an open object, as offsets in the output.
type member struct{ start, colon, end int }

// canonical returns a text that two valid JSON texts share exactly when they differ only in white
// space and member order. It is JSON without white space, its members sorted by their raw names. A
// long object is replaced by a zero byte, which JSON never holds, and the SHA-256 of its text.
func canonical(text []byte) []byte {
	out := make([]byte, 0, len(text))
	var open []bracket
	var members, scratch = []member{}, []byte{} // members: of all open objects, innermost last
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			end := stringEnd(text, i)
			out = append(out, text[i:end]...)
			i = end - 1
			continue
		case '[':
			open = append(open, bracket{})
		case '{':
			open = append(open, bracket{start: len(out), first: len(members), object: true})
			members = append(members, member{start: len(out) + 1, colon: len(out) + 1})
		case ':':
			members[len(members)-1].colon = len(out)
		case ',':
			if open[len(open)-1].object {
				members[len(members)-1].end = len(out)
				members = append(members, member{start: len(out) + 1, colon: len(out) + 1})
			}
		case ']':
			open = open[:len(open)-1]
		case '}':
			top := open[len(open)-1]
			open = open[:len(open)-1]
			members[len(members)-1].end = len(out)
			scratch = sortMembers(out, members[top.first:], scratch)
			members = members[:top.first]
			out = append(out, '}')
			if len(out)-top.start > maxInline {
				digest := sha256.Sum256(out[top.start:])
				out = append(append(out[:top.start], 0), digest[:]...)
			}
			continue
		}
		out = append(out, text[i])
	}
	return out
}

// stringEnd returns the offset just after the string that starts at text[start].
func stringEnd(text []byte, start int) int {
	i := start + 1
	for ; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(text))
}

// sortMembers sorts the members of an object, which are adjacent in out, by name and in place. It
// returns the scratch space, grown, for the next call.
func sortMembers(out []byte, members []member, scratch []byte) []byte {
	byName := func(a, b member) int {
		return bytes.Compare(out[a.start:a.colon], out[b.start:b.colon])
	}
	if slices.IsSortedFunc(members, byName) {
		return scratch
	}
	start := members[0].start
	slices.SortStableFunc(members, byName)
	scratch = scratch[:0]
	for i, m := range members {
		if i > 0 {
			scratch = append(scratch, ',')
		}
		scratch = append(scratch, out[m.start:m.end]...)
	}
	copy(out[start:], scratch)
	return scratch
}
