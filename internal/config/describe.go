package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Describe returns the config as it is in effect, as YAML: every default filled in, every number with
// its unit, secrets as *** and key digests shortened. What came from the environment is shown as the
// file has it, with ${NAME}. A key that is absent and means something by it stands there as a comment.
// Without what it hides, the text is a config of the same meaning.
func (c *Config) Describe() string {
	d := describer{written: c.written}
	d.structure("", reflect.ValueOf(c).Elem(), "")
	return d.String()
}

type describer struct {
	strings.Builder
	written written
}

func (d *describer) structure(path string, v reflect.Value, indent string) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		key := f.Tag.Get("key")
		if key == "" {
			continue // a number in place of its struct: see describe
		}
		value, means := v.FieldByIndex(f.Index), f.Tag.Get("absent")
		switch value.Kind() {
		case reflect.Bool:
			// It says something whatever it is.
		case reflect.Struct:
			if value.IsZero() && means != "" {
				d.absent(key, means, indent)
				continue
			}
		case reflect.Slice:
			if value.Len() == 0 && (value.IsNil() || means != "") {
				d.absent(key, means, indent)
				continue
			}
		default:
			_, spans := value.Interface().(time.Duration) // one of 0 says something, if it may be
			if value.IsZero() && (means != "" || !spans) {
				d.absent(key, means, indent)
				continue
			}
		}
		d.describe(join(path, key), key, value, indent)
	}
}

func (d *describer) absent(key, means, indent string) {
	if means != "" {
		fmt.Fprintf(d, "%s# no %s: %s\n", indent, key, means)
	}
}

func (d *describer) describe(path, key string, v reflect.Value, indent string) {
	if cost, ok := v.Interface().(Cost); ok && cost.From == "" {
		v = reflect.ValueOf(cost.Fixed)
	}
	switch v.Kind() {
	case reflect.Struct:
		fmt.Fprintf(d, "%s%s:\n", indent, key)
		d.structure(path, v, indent+"  ")
	case reflect.Map:
		fmt.Fprintf(d, "%s%s:\n", indent, key)
		for _, name := range names(asMap(v)) {
			d.describe(join(path, name), quoted(name), v.MapIndex(reflect.ValueOf(name)), indent+"  ")
		}
	case reflect.Slice:
		if v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct && !oneLine(v.Type().Elem()) {
			fmt.Fprintf(d, "%s%s:\n", indent, key)
			for i := range v.Len() {
				item := describer{written: d.written}
				item.structure(fmt.Sprintf("%s[%d]", path, i), v.Index(i), indent+"    ")
				fmt.Fprintf(d, "%s  - %s", indent, strings.TrimLeft(item.String(), " "))
			}
			return
		}
		var items []string
		for i := range v.Len() {
			items = append(items, d.scalar(fmt.Sprintf("%s[%d]", path, i), v.Index(i)))
		}
		fmt.Fprintf(d, "%s%s: [%s]\n", indent, key, strings.Join(items, ", "))
	default:
		fmt.Fprintf(d, "%s%s: %s\n", indent, key, d.scalar(path, v))
	}
}

// scalar is a value as YAML: what the file has, where that isn't all of it.
func (d *describer) scalar(path string, v reflect.Value) string {
	if text, ok := d.written[path]; ok {
		return strconv.Quote(text)
	}
	if text, ok := d.written[path+".operation"]; ok {
		return "{operation: " + strconv.Quote(text) + "}"
	}
	if text, ok := d.written[path+".body"]; ok {
		return "{body: " + text + "}"
	}
	return describeScalar(v)
}

// oneLine reports whether structs of a type are written like values.
func oneLine(t reflect.Type) bool {
	return t == reflect.TypeFor[netip.Prefix]() || t == reflect.TypeFor[Step]()
}

// asMap gives the names of a map of any type to names.
func asMap(v reflect.Value) map[string]struct{} {
	m := map[string]struct{}{}
	for _, k := range v.MapKeys() {
		m[k.String()] = struct{}{}
	}
	return m
}

func describeScalar(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return formatDuration(value)
	case Digest:
		return quoted(hex.EncodeToString(value[:4]) + "…")
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case string:
		return quoted(value)
	case Window:
		return value.String()
	case Secret, SecretURL, netip.Prefix:
		return quoted(fmt.Sprint(value))
	default: // int, int64, bool, Switch, Size
		return fmt.Sprint(value)
	}
}

// plainScalar is text that YAML takes as it stands, wherever it is.
var plainScalar = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9/_.+-]*$`)

// quoted is text as a YAML scalar, with what would be a variable escaped.
func quoted(text string) string {
	if plainScalar.MatchString(text) && !strings.EqualFold(text, "null") {
		return text
	}
	return strconv.Quote(strings.ReplaceAll(text, "${", "$${"))
}
