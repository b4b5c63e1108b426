package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/rawjson"
)

// readBody returns a request's body, which must be JSON of at most limit bytes. It is for operators'
// bodies, which are small and few.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, _, err := new(bodies).read(w, r, limit)
	return body, err
}

func tooLarge(limit int64) error {
	return problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge, fmt.Sprintf("The body may have at most %d bytes.", limit))
}

func checkMediaType(h http.Header) error {
	coding, given := h.Get("Content-Encoding"), h.Get("Content-Type")
	plain := coding == "" || strings.EqualFold(coding, "identity")
	if plain && given == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(given); !plain || err != nil || media != "application/json" {
		return problem(http.StatusUnsupportedMediaType, api.CodeMediaType, "Send JSON, with Content-Type: application/json and without Content-Encoding.")
	}
	return nil
}

// Bounds of a body's JSON. The calls of this API take five fields at most; a payload made by people or their tools is rarely over
// ten deep, and parsers that recurse begin to fail at some hundreds.
const (
	maxMembers = 32
	maxDepth   = 128
)

// member is one field of a JSON object, its value byte for byte as sent.
type member struct {
	name  string
	value []byte
}

// members returns the fields of a body that must be one JSON object: valid UTF-8, nothing after it, no name
// twice. What encoding/json lets pass in silence (a second value for a name, another case of a name, broken UTF-8) never reaches a
// handler, and no number or string is changed on its way.
func members(body []byte) ([]member, error) {
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return nil, invalidRequest("The body is empty: send a JSON object.")
	}
	if !utf8.Valid(body) {
		return nil, invalidRequest("The body isn't valid UTF-8.")
	}
	if !json.Valid(body) {
		return nil, invalidRequest("The body isn't valid JSON: " + syntaxError(body) + ".")
	}
	if !rawjson.IsObject(body) {
		return nil, invalidRequest("The body must be a JSON object.")
	}
	s := rawjson.Scan(body)
	var found []member
	for s.Next() {
		if len(found) == maxMembers {
			return nil, invalidRequest(fmt.Sprintf("The body has more than %d fields.", maxMembers))
		}
		m := member{name: s.Name()}
		var depth int
		if m.value, depth = s.Value(); depth >= maxDepth {
			return nil, invalidRequest(fmt.Sprintf("The body is nested deeper than %d.", maxDepth))
		}
		for _, before := range found {
			if before.name == m.name {
				return nil, invalidRequest(fmt.Sprintf("The field %s is given twice.", brief(m.name)))
			}
		}
		found = append(found, m)
	}
	return found, nil
}

// syntaxError says what is wrong with a body that isn't valid JSON, and where.
func syntaxError(body []byte) string {
	err := json.Unmarshal(body, new(json.RawMessage))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return "it can't be read"
	}
	return fmt.Sprintf("%v (byte %d)", syntax, syntax.Offset)
}

// brief quotes what a client sent, cut to a length that's fit for an answer.
func brief(text string) string {
	const limit = 64
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

// fieldErrors gathers what is wrong with the fields of a body, so that a client learns of all of it at once.
type fieldErrors []api.FieldError

func (f *fieldErrors) add(name, detail string) {
	*f = append(*f, api.FieldError{Detail: detail, Pointer: pointer(name)})
}

// err is nil, or the problem that lists the wrong fields.
func (f fieldErrors) err() error {
	if len(f) == 0 {
		return nil
	}
	p := problem(http.StatusUnprocessableEntity, api.CodeInvalidFields, "Some fields of the body are invalid.")
	p.Errors = f
	return p
}

// pointer is the JSON Pointer of a top-level field, as URI fragment (RFC 6901, section 6).
func pointer(name string) string {
	const limit = 64 // no answer repeats a name of any length
	if len(name) > limit {
		return "#"
	}
	return "#/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

func (f *fieldErrors) unknown(m member) { f.add(m.name, "There is no such field: "+brief(m.name)+".") }

// text reads a string.
func (f *fieldErrors) text(m member) string {
	text, ok := rawjson.Text(m.value)
	if !ok {
		f.add(m.name, "Must be a string.")
	}
	return text
}

// optionalText reads a string; null, as many clients write an absent one, is "".
func (f *fieldErrors) optionalText(m member) string {
	if string(m.value) == "null" {
		return ""
	}
	return f.text(m)
}

// duration reads a duration of at least a millisecond, such as "90s"; null is 0.
func (f *fieldErrors) duration(m member) time.Duration {
	text := f.optionalText(m)
	if text == "" && string(m.value) != `""` {
		return 0 // null, or not a string and noted as such
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond {
		f.add(m.name, `Must be a duration of at least 1ms, with a unit, such as "90s" or "1h30m".`)
		return 0
	}
	return d
}

// count reads a whole number from 1 to limit.
func (f *fieldErrors) count(m member, limit int) *int {
	var n int
	if err := json.Unmarshal(m.value, &n); err != nil || n < 1 || n > limit {
		f.add(m.name, fmt.Sprintf("Must be a whole number from 1 to %d.", limit))
		return nil
	}
	return &n
}

// flag reads true or false.
func (f *fieldErrors) flag(m member) *bool {
	var b bool
	switch string(m.value) {
	case "true":
		b = true
	case "false":
	default:
		f.add(m.name, "Must be true or false.")
		return nil
	}
	return &b
}
