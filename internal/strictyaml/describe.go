package strictyaml

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/forebay/forebay/internal/units"
)

// Describe returns the struct v as YAML, with every default filled in and every number with its
// unit. A value with a Redacted method is shown by that; what came from the environment is shown as
// written has it. A key whose absence has a meaning is shown as a comment. Apart from what is
// hidden, the text is a file of the same meaning.
func Describe(v any, written Written) string {
	d := describer{written: written}
	d.structure("", reflect.ValueOf(v), "")
	return d.String()
}

type describer struct {
	strings.Builder
	written Written
}

func (d *describer) structure(path string, v reflect.Value, indent string) {
	for _, f := range shapeOf(v.Type()).fields {
		value := v.FieldByIndex(f.index)
		switch {
		case !saysNothing(value, f.absent):
			d.describe(Join(path, f.key), f.key, value, indent)
		case f.absent != "":
			fmt.Fprintf(d, "%s# no %s: %s\n", indent, f.key, f.absent)
		}
	}
}

// saysNothing reports whether a value may be left out. A switch never may, and a zero duration or
// struct only if zero means that the key is absent.
func saysNothing(v reflect.Value, means string) bool {
	_, spans := v.Interface().(time.Duration)
	switch {
	case v.Kind() == reflect.Bool:
		return false
	case v.Kind() == reflect.Slice:
		return v.Len() == 0 && (v.IsNil() || means != "")
	case v.Kind() == reflect.Struct && !isScalar(v.Type()), spans:
		return v.IsZero() && means != ""
	}
	return v.IsZero()
}

func (d *describer) describe(path, key string, v reflect.Value, indent string) {
	switch {
	case inLine(v):
		fmt.Fprintf(d, "%s%s: %s\n", indent, key, d.flow(path, v))
	case v.Kind() == reflect.Struct:
		fmt.Fprintf(d, "%s%s:\n", indent, key)
		d.structure(path, v, indent+"  ")
	case v.Kind() == reflect.Map:
		fmt.Fprintf(d, "%s%s:\n", indent, key)
		for name, element := range elements(v) {
			d.describe(Join(path, name), quoted(name), element, indent+"  ")
		}
	default:
		fmt.Fprintf(d, "%s%s:\n", indent, key)
		for i := range v.Len() {
			item := describer{written: d.written}
			item.structure(At(path, i), v.Index(i), indent+"    ")
			fmt.Fprintf(d, "%s  - %s", indent, strings.TrimLeft(item.String(), " "))
		}
	}
}

// inLine reports whether a value is written on one line: a single value, or a list of single values
// or of structs that may be given as one.
func inLine(v reflect.Value) bool {
	switch t := v.Type(); {
	case isScalar(t):
		return true
	case t.Kind() == reflect.Struct:
		whole := shapeOf(t).whole
		return whole != nil && !v.FieldByIndex(whole.index).IsZero()
	case t.Kind() == reflect.Slice && v.Len() > 0 && !isScalar(t.Elem()):
		return shapeOf(t.Elem()).whole != nil
	}
	return v.Kind() == reflect.Slice
}

// flow returns a value on one line, with values from the environment as in the file.
func (d *describer) flow(path string, v reflect.Value) string {
	text, fromEnv := d.written[path]
	switch {
	case v.Type() == reflect.TypeFor[JSON]():
		if !fromEnv {
			text = escaped(v.String())
		}
		return text
	case fromEnv:
		return strconv.Quote(text)
	case isScalar(v.Type()):
		return quoted(scalarText(v.Interface()))
	case v.Kind() == reflect.Slice:
		var items []string
		for i := range v.Len() {
			items = append(items, d.flow(At(path, i), v.Index(i)))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	s := shapeOf(v.Type())
	if whole := v.FieldByIndex(s.whole.index); !whole.IsZero() {
		return d.flow(path, whole)
	}
	var pairs []string
	for _, f := range s.fields {
		if value := v.FieldByIndex(f.index); !value.IsZero() {
			pairs = append(pairs, f.key+": "+d.flow(Join(path, f.key), value))
		}
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// scalarText returns a value as a file has it, without quotes.
func scalarText(v any) string {
	switch v := v.(type) {
	case redacted:
		return v.Redacted()
	case time.Duration:
		return units.FormatDuration(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// plainScalar matches text that needs no quotes anywhere in YAML.
var plainScalar = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9/_.+-]*$`)

// quoted returns text as a YAML scalar.
func quoted(text string) string {
	if plainScalar.MatchString(text) && !strings.EqualFold(text, "null") {
		return text
	}
	return strconv.Quote(escaped(text))
}

// escaped returns text with each ${ escaped.
func escaped(text string) string { return strings.ReplaceAll(text, "${", "$${") }
