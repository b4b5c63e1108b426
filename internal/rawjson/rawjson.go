// Package rawjson reads parts of JSON texts without changing a byte of them: no number is parsed as
// a float, and no string is rewritten.
//
// All functions require valid JSON (json.Valid). On other texts they panic or return arbitrary
// results. The returned slices are parts of the text.
package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Scanner iterates over one object or array. It is not safe for concurrent use.
type Scanner struct {
	in []byte
	at int
}

// Scan returns a Scanner at the beginning of text, which must be an object or an array, with any
// white space around it.
func Scan(text []byte) Scanner { return Scanner{in: text} }

// Next advances to the next member of the object, or element of the array, and reports whether
// there is one. After it, call Name (or Label) and Value once each for a member, and Value once for
// an element.
func (s *Scanner) Next() bool {
	if s.space(); s.ends() {
		return false
	}
	s.at++
	s.space()
	return !s.ends()
}

// Name returns a member's name.
func (s *Scanner) Name() string {
	name, _ := Text(s.Label())
	return name
}

// Label is Name, but returns the bytes as spelled, with their quotes.
func (s *Scanner) Label() []byte {
	from := s.at
	s.text()
	label := s.in[from:s.at]
	s.space()
	s.at++
	return label
}

// Value returns a value without the white space around it, and how deep arrays and objects nest in
// it; 0 for a value that is neither.
func (s *Scanner) Value() (value []byte, depth int) {
	s.space()
	from, open := s.at, 0
	for {
		switch s.in[s.at] {
		case '"':
			s.text()
		case '{', '[':
			open++
			depth = max(depth, open)
			s.at++
		case '}', ']':
			open--
			s.at++
		case ' ', '\t', '\r', '\n', ',', ':': // inside an array or object
			s.at++
		default:
			for strings.IndexByte(",]}: \t\r\n", s.in[s.at]) < 0 {
				s.at++
			}
		}
		if open == 0 {
			return s.in[from:s.at], depth
		}
	}
}

func (s *Scanner) space() {
	for s.in[s.at] == ' ' || s.in[s.at] == '\t' || s.in[s.at] == '\n' || s.in[s.at] == '\r' {
		s.at++
	}
}

func (s *Scanner) ends() bool { return s.in[s.at] == '}' || s.in[s.at] == ']' }

// text moves past a string.
func (s *Scanner) text() {
	for s.at++; s.in[s.at] != '"'; s.at++ {
		if s.in[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
}

// IsObject reports whether a text is an object.
func IsObject(text []byte) bool {
	text = trim(text)
	return len(text) > 0 && text[0] == '{'
}

// Text returns the text of a string value. It returns false for a value of another kind.
func Text(value []byte) (string, bool) {
	if value[0] != '"' {
		return "", false
	}
	if inner := value[1 : len(value)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

func trim(text []byte) []byte { return bytes.Trim(text, " \t\r\n") }
