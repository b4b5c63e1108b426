package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/rawjson"
)

// Bounds of a body's JSON. The calls of this API take at most six fields. A payload made by people
// or their tools is rarely over ten deep, and recursive parsers begin to fail at some hundreds.
const (
	maxMembers = 32
	maxDepth   = 128
)

// Member is one field of a JSON object.
type Member struct {
	Name  string
	Value []byte // byte for byte as sent
}

// Members returns the fields of a body that must be one JSON object: valid UTF-8, nothing after it,
// no name twice, at most 32 fields and less than 128 deep. Forms that encoding/json accepts (a
// second value for a name, another case of a name, broken UTF-8) never reach a handler, and no
// number or string is changed. An error is an *api.Problem.
func Members(body []byte) ([]Member, error) {
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return nil, InvalidRequest("The body is empty: send a JSON object.")
	}
	if !utf8.Valid(body) {
		return nil, InvalidRequest("The body isn't valid UTF-8.")
	}
	if !json.Valid(body) {
		return nil, InvalidRequest("The body isn't valid JSON: " + syntaxError(body) + ".")
	}
	if !rawjson.IsObject(body) {
		return nil, InvalidRequest("The body must be a JSON object.")
	}
	s := rawjson.Scan(body)
	found := make([]Member, 0, 5) // as many as the fields of a request for a job
	for s.Next() {
		if len(found) == maxMembers {
			return nil, InvalidRequest(fmt.Sprintf("The body has more than %d fields.", maxMembers))
		}
		m := Member{Name: s.Name()}
		var depth int
		if m.Value, depth = s.Value(); depth >= maxDepth {
			return nil, InvalidRequest(fmt.Sprintf("The body is nested deeper than %d.", maxDepth))
		}
		for _, before := range found {
			if before.Name == m.Name {
				return nil, InvalidRequest("The field " + Brief(m.Name) + " is given twice.")
			}
		}
		found = append(found, m)
	}
	return found, nil
}

// syntaxError describes what is wrong with a body that isn't valid JSON, and where.
func syntaxError(body []byte) string {
	err := json.Unmarshal(body, new(json.RawMessage))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return "it can't be read"
	}
	return fmt.Sprintf("%v (byte %d)", syntax, syntax.Offset)
}

// Brief quotes a text that a client sent, cut to a length that suits an answer.
func Brief(text string) string {
	const limit = 64
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

// FieldErrors collects the errors in the fields of a body, so that a client learns of all of them
// at once. The methods that read a field add an error if its value isn't of their kind.
type FieldErrors []api.FieldError

// Add adds an error in the named field.
func (f *FieldErrors) Add(name, detail string) {
	*f = append(*f, api.FieldError{Detail: detail, Pointer: Pointer(name)})
}

// Err returns the problem that lists the wrong fields, or nil.
func (f FieldErrors) Err() error {
	if len(f) == 0 {
		return nil
	}
	p := Problem(http.StatusUnprocessableEntity, api.CodeInvalidFields,
		"Some fields of the body are invalid.")
	p.Errors = f
	return p
}

// Pointer returns the JSON Pointer of a top-level field, as URI fragment (RFC 6901, section 6).
func Pointer(name string) string {
	const limit = 64 // an answer must not repeat a name of any length
	if len(name) > limit {
		return "#"
	}
	return "#/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

// Unknown adds an error for a field with a name that the call doesn't know.
func (f *FieldErrors) Unknown(m Member) {
	f.Add(m.Name, "There is no such field: "+Brief(m.Name)+".")
}

// Text reads a string.
func (f *FieldErrors) Text(m Member) string {
	text, ok := rawjson.Text(m.Value)
	if !ok {
		f.Add(m.Name, "Must be a string.")
	}
	return text
}

// Filled reads a string that isn't empty. An empty one would match everything, but is more likely a
// variable that wasn't set.
func (f *FieldErrors) Filled(m Member) string {
	text, ok := rawjson.Text(m.Value)
	if !ok || text == "" {
		f.Add(m.Name, "Must be a string that isn't empty; leave it out for any.")
	}
	return text
}

// OptionalText reads a string; null, which many clients write for an absent one, is "".
func (f *FieldErrors) OptionalText(m Member) string {
	if string(m.Value) == "null" {
		return ""
	}
	return f.Text(m)
}

// Duration reads a duration of at least a millisecond, such as "90s"; null is 0.
func (f *FieldErrors) Duration(m Member) time.Duration {
	text := f.OptionalText(m)
	if text == "" && string(m.Value) != `""` {
		return 0 // null, or not a string and noted as such
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond {
		f.Add(m.Name, `Must be a duration of at least 1ms, with a unit, such as "90s" or "1h30m".`)
		return 0
	}
	return d
}

// Count reads a whole number from 1 to limit; nil: the value isn't one.
func (f *FieldErrors) Count(m Member, limit int) *int {
	var n int
	if err := json.Unmarshal(m.Value, &n); err != nil || n < 1 || n > limit {
		f.Add(m.Name, fmt.Sprintf("Must be a whole number from 1 to %d.", limit))
		return nil
	}
	return &n
}

// Flag reads true or false; nil: the value is neither.
func (f *FieldErrors) Flag(m Member) *bool {
	var b bool
	switch string(m.Value) {
	case "true":
		b = true
	case "false":
	default:
		f.Add(m.Name, "Must be true or false.")
		return nil
	}
	return &b
}
