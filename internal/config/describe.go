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
// its unit, secrets as *** and key digests shortened. A key that is absent and means something by
// it stands there as a comment. Without what it hides, the text is a config of the same meaning.
func (c *Config) Describe() string {
	var out strings.Builder
	describeStruct(&out, reflect.ValueOf(c).Elem(), "")
	return out.String()
}

// DescribeClients is Describe for the clients of a clients file.
func DescribeClients(clients []Client) string {
	var out strings.Builder
	describe(&out, "clients", reflect.ValueOf(clients), "")
	return out.String()
}

func describeStruct(out *strings.Builder, v reflect.Value, indent string) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		key, value := f.Tag.Get("key"), v.FieldByIndex(f.Index)
		means := f.Tag.Get("absent")
		if key == "" {
			continue // a number in place of its struct: see describe
		}
		switch value.Kind() {
		case reflect.Bool:
			// It says something whatever it is.
		case reflect.Struct:
			if value.IsZero() && means != "" {
				describeAbsent(out, key, means, indent)
				continue
			}
		case reflect.Slice:
			if value.Len() == 0 && (value.IsNil() || means != "") {
				describeAbsent(out, key, means, indent)
				continue
			}
		default:
			if value.IsZero() {
				describeAbsent(out, key, means, indent)
				continue
			}
		}
		describe(out, key, value, indent)
	}
}

func describeAbsent(out *strings.Builder, key, means, indent string) {
	if means != "" {
		fmt.Fprintf(out, "%s# no %s: %s\n", indent, key, means)
	}
}

func describe(out *strings.Builder, key string, v reflect.Value, indent string) {
	switch v.Kind() {
	case reflect.Struct:
		if cost, ok := v.Interface().(Cost); ok && cost.From == "" {
			fmt.Fprintf(out, "%s%s: %d\n", indent, key, cost.Fixed)
			return
		}
		fmt.Fprintf(out, "%s%s:\n", indent, key)
		describeStruct(out, v, indent+"  ")
	case reflect.Map:
		fmt.Fprintf(out, "%s%s:\n", indent, key)
		for _, name := range names(asMap(v)) {
			describe(out, quoted(name), v.MapIndex(reflect.ValueOf(name)), indent+"  ")
		}
	case reflect.Slice:
		if v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct && !oneLine(v.Type().Elem()) {
			fmt.Fprintf(out, "%s%s:\n", indent, key)
			for i := range v.Len() {
				var item strings.Builder
				describeStruct(&item, v.Index(i), indent+"    ")
				fmt.Fprintf(out, "%s  - %s", indent, strings.TrimLeft(item.String(), " "))
			}
			return
		}
		var items []string
		for i := range v.Len() {
			items = append(items, describeScalar(v.Index(i)))
		}
		fmt.Fprintf(out, "%s%s: [%s]\n", indent, key, strings.Join(items, ", "))
	default:
		fmt.Fprintf(out, "%s%s: %s\n", indent, key, describeScalar(v))
	}
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
