package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/text"
)

// table is an answer as rows. Without a head it is of names and values.
type table struct {
	head  []string
	rows  [][]string
	names []string // for -o name, by row
}

// columns is a table with a head, whose names are between bars.
func columns(head string) table { return table{head: strings.Split(head, "|")} }

func (t *table) add(name string, cells ...string) {
	t.rows, t.names = append(t.rows, cells), append(t.names, name)
}

// write writes the table for people, its columns aligned, or as lines of values between tabs. No
// cell can break a line or steer a terminal. Empty values of a table without a head are left out.
func (t *table) write(w io.Writer, people bool) {
	rows := make([][]string, 0, 1+len(t.rows))
	if people && t.head != nil {
		rows = append(rows, t.head)
	}
	for _, row := range t.rows {
		if t.head == nil && people && row[len(row)-1] == "" {
			continue
		}
		clean := make([]string, len(row))
		for i, cell := range row {
			clean[i] = text.Clean(cell)
		}
		rows = append(rows, clean)
	}
	if people {
		io.WriteString(w, text.Columns("", rows))
		return
	}
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
}

// form is the form of the output.
func (a *app) form() string {
	switch {
	case a.format != "":
		return a.format
	case a.isTerminal(a.stdout):
		return "table"
	}
	return "tsv"
}

// show writes an answer: v, or its bytes if it is a json.RawMessage, or t.
func (a *app) show(v any, t table) error {
	w := bufio.NewWriter(a.stdout)
	switch form := a.form(); form {
	case "json", "yaml":
		raw, isRaw := v.(json.RawMessage)
		if !isRaw {
			var err error
			if raw, err = json.Marshal(v); err != nil {
				return err
			}
		}
		if err := writeTree(w, raw, form); err != nil {
			return err
		}
	case "name":
		for _, name := range t.names {
			if name != "" {
				fmt.Fprintln(w, text.Clean(name))
			}
		}
	default:
		t.write(w, form == "table")
	}
	return w.Flush()
}

// writeTree writes JSON, for people to read, or the same as YAML.
func writeTree(w io.Writer, raw []byte, form string) (err error) {
	var b bytes.Buffer
	if form == "yaml" {
		raw, err = strictyaml.FromJSON(raw)
		b.Write(raw)
	} else if err = json.Indent(&b, bytes.TrimSpace(raw), "", "  "); err == nil {
		b.WriteByte('\n')
	}
	if err != nil {
		return failed("the answer isn't JSON: %v", err)
	}
	_, err = b.WriteTo(w)
	return err
}

// flat is the JSON of an answer as a table: the members, those of objects with dots in their names.
// A list of objects is a row for each. Its columns are those given, whatever the objects have, so
// that scripts can count them; without any, those that are there.
func flat(raw []byte, columns []string) (table, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var top any
	if err := d.Decode(&top); err != nil {
		return table{}, failed("the answer isn't JSON: %v", err)
	}
	var t table
	list, listed := listIn(top)
	if !listed {
		flatten("", top, func(name, value string) { t.add("", name, value) })
		return t, nil
	}
	t.head = columns
	for _, item := range list {
		for _, name := range slices.Sorted(maps.Keys(item.(map[string]any))) {
			if columns == nil && !slices.Contains(t.head, name) {
				t.head = append(t.head, name)
			}
		}
	}
	for _, item := range list {
		row := make([]string, len(t.head))
		for i, name := range t.head {
			row[i] = cell(item.(map[string]any)[name])
		}
		t.add("", row...)
	}
	return t, nil
}

// columnsOf are the members of the objects that an answer lists, in the order of their type; nil if
// it doesn't list objects.
func columnsOf(answer reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(answer) {
		if f.Type.Kind() != reflect.Slice || f.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(f.Type.Elem()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.Anonymous && name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// cell is a value as one cell of a row: the values in an object by their names.
func cell(v any) string {
	var parts []string
	flatten("", v, func(name, value string) {
		parts = append(parts, strings.TrimPrefix(name+"="+value, "="))
	})
	return strings.Join(parts, ",")
}

// listIn returns the list of objects that an answer is, or that is all that it has beside a cursor.
func listIn(v any) ([]any, bool) {
	if o, is := v.(map[string]any); is {
		delete(o, "next_cursor")
		for _, member := range o {
			v = member
		}
		if len(o) != 1 {
			return nil, false
		}
	}
	list, is := v.([]any)
	if !is || len(list) == 0 {
		return nil, is
	}
	_, objects := list[0].(map[string]any)
	return list, objects
}

func flatten(name string, v any, add func(name, value string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range slices.Sorted(maps.Keys(v)) {
			full := member
			if name != "" {
				full = name + "." + member
			}
			flatten(full, v[member], add)
		}
	case []any:
		var parts []string
		for _, item := range v {
			parts = append(parts, cell(item))
		}
		add(name, strings.Join(parts, ","))
	case nil:
		add(name, "")
	default:
		add(name, fmt.Sprint(v))
	}
}

// showText writes a text for people, line by line, as a terminal shows it.
func (a *app) showText(body string) error {
	w := bufio.NewWriter(a.stdout)
	for line := range strings.Lines(body) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    ")
		fmt.Fprintln(w, a.paint(text.Clean(line)))
	}
	return w.Flush()
}

// paint colours a line by the verdict that it begins with, on a terminal that wants colours.
func (a *app) paint(line string) string {
	word, _, _ := strings.Cut(line, " ")
	colour := map[string]string{"ok": "32", "warning": "33", "critical": "31",
		"unknown": "35"}[word]
	_, none := a.env("NO_COLOR")
	if colour == "" || none || a.variable("TERM") == "dumb" || !a.isTerminal(a.stdout) {
		return line
	}
	return "\x1b[" + colour + "m" + word + "\x1b[0m" + line[len(word):]
}

// showResult writes a backend's answer byte for byte. Bytes that aren't text aren't written to a
// terminal.
func (a *app) showResult(contentType string, body []byte) error {
	if a.isTerminal(a.stdout) {
		kind, _, _ := mime.ParseMediaType(contentType)
		if !utf8.Valid(body) || bytes.ContainsAny(body, "\x1b\x00\x9b") {
			return &failure{code: exitUsage, text: fmt.Sprintf("the result is %d bytes of %s, "+
				"which a terminal can't show: redirect it, as in > file", len(body), kind)}
		}
		if body = bytes.TrimSuffix(body, []byte("\n")); len(body) > 0 {
			return a.showText(string(body))
		}
		return nil
	}
	_, err := a.stdout.Write(body)
	return err
}

// confirm asks, and returns nil after a yes. Without a terminal it asks nothing, and fails.
func (a *app) confirm(ctx context.Context, question string) error {
	if !a.isTerminal(a.stdin) || !a.isTerminal(a.stderr) {
		return &failure{code: exitUsage, text: "this would " + question + ", and there is no " +
			"terminal to ask on", next: "the same with --yes"}
	}
	fmt.Fprintf(a.stderr, "%s? [y/N] ", text.Clean(question))
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		said <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case word := <-said:
		if word == "y" || word == "yes" {
			return nil
		}
		return failed("nothing was done")
	}
}

// moment writes a time in UTC: for people its time of day, with its date unless that is today.
func (a *app) moment(t *api.Time) string {
	switch {
	case t == nil || t.IsZero():
		return ""
	case a.form() != "table":
		return t.UTC().Format("2006-01-02T15:04:05.000Z")
	case t.UTC().Format(time.DateOnly) == time.Now().UTC().Format(time.DateOnly):
		return t.UTC().Format(time.TimeOnly)
	}
	return t.UTC().Format(time.DateTime)
}
