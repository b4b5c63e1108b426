package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one error in a file, or one warning about it.
type Problem struct {
	File string // as it was named to Read; "" for a value that came from no file
	Line int    // 0: unknown
	Key  string // such as backends.reports.drain.rate; "" for the file as a whole
	Text string // the fault and its correction; never shows the environment or a secret
}

// String returns "file:line: key: text".
func (p Problem) String() string {
	var s strings.Builder
	s.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&s, ":%d", p.Line)
	}
	if s.Len() > 0 {
		s.WriteString(": ")
	}
	if p.Key != "" {
		s.WriteString(p.Key + ": ")
	}
	s.WriteString(p.Text)
	return s.String()
}

// Errors are all problems of a file, in the order of its lines.
type Errors []Problem

// maxShown bounds Error to about a screen of lines.
const maxShown = 20

// Error shows the first 20 problems, one a line.
func (e Errors) Error() string {
	var lines []string
	for _, p := range e[:min(len(e), maxShown)] {
		lines = append(lines, p.String())
	}
	if more := len(e) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Report collects the problems of a file while it is read and checked: at most one error a key, and
// none for a key inside one that has an error. It is not safe for concurrent use.
type Report struct {
	file     string
	places   map[string]place // by key path: every key that the file gives
	failed   map[string]bool
	errors   Errors
	warnings []Problem
}

// place is where the file gives a key.
type place struct {
	line    int
	text    string // of a scalar, as it is in the file: with ${NAME} unexpanded
	fromEnv bool
	written string // text without secrets, if fromEnv; "" for a secret
}

// NewReport returns an empty report; file is "" for a value that came from no file.
func NewReport(file string) *Report {
	return &Report{file: file, places: map[string]place{}, failed: map[string]bool{}}
}

// File returns the file's name, as given to Read.
func (r *Report) File() string { return r.file }

// Given reports whether the file gives a key.
func (r *Report) Given(key string) bool {
	_, ok := r.places[key]
	return ok
}

// Scalar reports whether the file gives a key as a single value that isn't empty.
func (r *Report) Scalar(key string) bool { return r.places[key].text != "" }

// FromEnv reports whether a part of a key's value comes from the environment.
func (r *Report) FromEnv(key string) bool { return r.places[key].fromEnv }

// Failed reports whether a key has an error of its own.
func (r *Report) Failed(key string) bool { return r.failed[key] }

// FailedWithin reports whether a key or one inside it has an error.
func (r *Report) FailedWithin(key string) bool {
	for failed := range r.failed {
		for ; failed != ""; failed = parent(failed) {
			if failed == key {
				return true
			}
		}
	}
	return false
}

// Errorf adds an error, unless the key or one that holds it has one.
func (r *Report) Errorf(key, format string, args ...any) {
	for k := key; k != ""; k = parent(k) {
		if r.failed[k] {
			return
		}
	}
	r.failed[key] = true
	r.errors = append(r.errors, r.problem(key, format, args...))
}

// Warnf adds a warning: a problem that doesn't keep the file from being used.
func (r *Report) Warnf(key, format string, args ...any) {
	r.warnings = append(r.warnings, r.problem(key, format, args...))
}

func (r *Report) problem(key, format string, args ...any) Problem {
	p := Problem{File: r.file, Key: key, Text: fmt.Sprintf(format, args...)}
	for k := key; k != "" && p.Line == 0; k = parent(k) {
		p.Line = r.places[k].line // a key that is missing is missing in its parent
	}
	return p
}

// Err returns the errors that were found as an Errors, or nil if there are none.
func (r *Report) Err() error {
	if len(r.errors) == 0 {
		return nil
	}
	return Errors(sorted(r.errors))
}

// Warnings returns the warnings, in the order of the file.
func (r *Report) Warnings() []Problem { return sorted(r.warnings) }

// Written returns the file's text of the values that came from the environment.
func (r *Report) Written() Written {
	w := Written{}
	for key, p := range r.places {
		if p.written != "" {
			w[key] = p.written
		}
	}
	return w
}

// Written is a file's text of values that came from the environment, by key, as YAML scalars.
// Values that are secret as a whole aren't in it.
type Written map[string]string

// Or returns the text written at a key, or otherwise if the value didn't come from the environment.
func (w Written) Or(key, otherwise string) string {
	if text, ok := w[key]; ok {
		return text
	}
	return otherwise
}

// Shown returns a key's value as the file has it, quoted. If the value came from no file, it
// returns fallback, the value itself.
func (r *Report) Shown(key string, fallback any) string {
	switch p := r.places[key]; {
	case p.fromEnv:
		return Quote(p.text) + " (with the environment's value)"
	case p.line > 0:
		return Quote(p.text)
	}
	return Quote(scalarText(fallback))
}

// OnLine returns " (line 12)" if the file gives a key, otherwise "".
func (r *Report) OnLine(key string) string {
	if line := r.places[key].line; line > 0 {
		return fmt.Sprintf(" (line %d)", line)
	}
	return ""
}

// Known adds an error, which suggests the nearest known name, if the name at key is none of the
// known names of a kind. It adds none if the known names, which are given at the key kind + "s",
// have an error themselves.
func (r *Report) Known(key, name, kind string, known []string) {
	if slices.Contains(known, name) || r.failed[kind+"s"] {
		return
	}
	mend := fmt.Sprintf("known %ss: %s", kind, List(known))
	if near := nearest(name, known); near != "" {
		mend = fmt.Sprintf("did you mean %s?", near)
	}
	r.Errorf(key, "there is no %s %s; %s", kind, r.Shown(key, name), mend)
}

// Within adds an error if a value at key is under least or over most.
func Within[T cmp.Ordered](r *Report, key string, value, least, most T) {
	if value < least || value > most {
		r.Errorf(key, "%s is out of bounds; write %s to "+
			"%s", r.Shown(key, value), scalarText(least), scalarText(most))
	}
}

// sorted returns the problems in the order of the file.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return problems
}

// parent returns the path of the key that contains key; "" at the top.
func parent(key string) string {
	if cut := strings.LastIndexAny(key, ".["); cut > 0 {
		return key[:cut]
	}
	return ""
}

// List returns the first ten names as part of a sentence.
func List(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > 10 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), len(names)-10)
	}
	return strings.Join(names, ", ")
}

// Quote returns text of the file in quotes, cut to keep messages readable.
func Quote(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
