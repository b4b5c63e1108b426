package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a config, or worth a second look.
type Problem struct {
	File string // as it was named to Load; "" for a config that came from no file
	Line int    // 0: unknown
	Key  string // such as backends.reports.drain.rate; "" for the file as a whole
	Text string // what is wrong, and the mend; never a value from the environment, nor of a secret key
}

// String is "file:line: key: text".
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

// Warning is a Problem that doesn't keep a config from being used.
type Warning = Problem

// Errors are all problems of a config, by line.
type Errors []Problem

// maxShown bounds what Error prints: a screen. What follows is rarely worth reading before
// those are mended.
const maxShown = 20

// Error is one problem a line, the first 20 of them.
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

// report gathers what is found while a config is read and checked. It has at most one problem
// a key: what was not understood is not also missing.
type report struct {
	file     string
	places   map[string]place // by key path: every key that the file gives
	failed   map[string]bool
	errors   Errors
	warnings []Warning
}

// place is where the file gives a key.
type place struct {
	line    int
	text    string // of a scalar, as it stands in the file: with ${NAME} unexpanded
	fromEnv bool
	written string // text without secrets, where fromEnv; "" for a Secret
}

// written is what stands in a file for values that came from the environment, by key path, as YAML
// scalars. What a Secret key says isn't in it.
type written map[string]string

// or is what is written at a key, where that came from the environment.
func (w written) or(key, otherwise string) string {
	if text, ok := w[key]; ok {
		return text
	}
	return otherwise
}

func (r *report) written() written {
	w := written{}
	for key, p := range r.places {
		if p.written != "" {
			w[key] = p.written
		}
	}
	return w
}

func newReport(file string) *report {
	return &report{file: file, places: map[string]place{}, failed: map[string]bool{}}
}

// given reports whether the file gives a key.
func (r *report) given(key string) bool {
	_, ok := r.places[key]
	return ok
}

func (r *report) errorf(key, format string, args ...any) {
	for k := key; k != ""; k = parent(k) {
		if r.failed[k] {
			return
		}
	}
	r.failed[key] = true
	r.errors = append(r.errors, r.problem(key, format, args...))
}

func (r *report) warnf(key, format string, args ...any) {
	r.warnings = append(r.warnings, r.problem(key, format, args...))
}

func (r *report) problem(key, format string, args ...any) Problem {
	p := Problem{File: r.file, Key: key, Text: fmt.Sprintf(format, args...)}
	for k := key; k != "" && p.Line == 0; k = parent(k) {
		p.Line = r.places[k].line // a key that is missing is missing in its parent
	}
	return p
}

// shown is a value as the file has it. fallback is that of a config that came from no file.
func (r *report) shown(key string, fallback any) string {
	switch p := r.places[key]; {
	case p.fromEnv:
		return brief(p.text) + " (with the environment's value)"
	case p.line > 0:
		return brief(p.text)
	}
	return brief(fmt.Sprint(fallback))
}

// sorted returns the problems in the order of the file.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key)) })
	return problems
}

// parent is the path of what holds key: "" at the top.
func parent(key string) string {
	if cut := strings.LastIndexAny(key, ".["); cut > 0 {
		return key[:cut]
	}
	return ""
}

// brief quotes text of the file, cut to a length that leaves a message readable.
func brief(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
