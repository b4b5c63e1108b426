package strictyaml

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forebay/forebay/internal/units"
)

// decoder reads a YAML tree into structs, whose types bound the depth of the walk, whatever aliases
// the file has.
type decoder struct {
	*Report
	lookup func(string) (string, bool)
	root   reflect.Type // of the whole file
}

const noValue = "has no value; write one, or leave the key out"

// value reads n, given on a line under a key, into v.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string, line, most int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.places[key] = place{line: line}
	if n.Kind == yaml.ScalarNode {
		d.places[key] = place{line: line, text: n.Value}
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.Errorf(key, "has a YAML tag (%s), which means nothing here; remove it", Quote(n.Tag))
		return
	}
	empty := n.Kind == yaml.ScalarNode && n.Tag == "!!null"
	switch {
	case v.Type() == reflect.TypeFor[JSON]():
		d.json(n, v.Addr().Interface().(*JSON), key)
	case isScalar(v.Type()):
		if empty {
			d.Errorf(key, noValue)
		} else if d.wants(n, yaml.ScalarNode, false, key, "wants one value") {
			d.scalar(n, v, key)
		}
	case v.Kind() == reflect.Map:
		if d.wants(n, yaml.MappingNode, empty, key, "wants names, each with what belongs to it "+
			"below") {
			d.mapping(n, v, key, most)
		}
	case v.Kind() == reflect.Slice:
		if d.wants(n, yaml.SequenceNode, false, key, "wants a list, such as [a, b], or lines that "+
			"begin with a dash") {
			d.list(n, v, key, most)
		}
	default:
		switch s := shapeOf(v.Type()); {
		case s.whole == nil:
			text := "wants keys of its own: " + strings.Join(s.keys(), ", ")
			if d.wants(n, yaml.MappingNode, empty, key, text) {
				d.structure(n, v, key)
			}
		case empty:
			d.Errorf(key, noValue)
		case n.Kind == yaml.ScalarNode:
			d.scalar(n, v.FieldByIndex(s.whole.index), key)
		case d.wants(n, yaml.MappingNode, false, key, "wants "+s.forms):
			v.SetZero()
			setFields(v)
			d.structure(n, v, key)
		}
	}
}

// wants reports whether n is of a kind. An empty value may stand for no keys at all.
func (d *decoder) wants(n *yaml.Node, kind yaml.Kind, empty bool, key, text string) bool {
	if n.Kind != kind && !empty {
		d.Errorf(key, "%s", text)
	}
	return n.Kind == kind
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, key string) {
	s := shapeOf(v.Type())
	d.pairs(n, key, func(name, path string, line int, value *yaml.Node) {
		f := s.find(name)
		if f == nil {
			d.places[path] = place{line: line}
			d.Errorf(path, "unknown key%s", suggest(name, v.Type(), d.root))
			return
		}
		into := v.FieldByIndex(f.index)
		if f.optional() {
			setDefaults(into)
		}
		d.value(value, into, path, line, f.most)
	})
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string, most int) {
	if len(n.Content)/2 > most {
		d.Errorf(key, "has %d entries; at most %d are allowed", len(n.Content)/2, most)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	elements := v.Type().Elem()
	d.pairs(n, key, func(name, path string, line int, value *yaml.Node) {
		// A single value where a named thing should be, and its name is that of a key: the
		// indentation is wrong.
		if value.Kind == yaml.ScalarNode && value.Tag != "!!null" && !isScalar(elements) {
			if at := holders(name, d.root, ""); len(at) > 0 {
				d.places[path] = place{line: line}
				d.Errorf(path, "belongs to %s: check the indentation", strings.Join(at, " or "))
				return
			}
		}
		v.SetMapIndex(reflect.ValueOf(name), d.element(value, elements, path, line))
	})
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, key string, most int) {
	if len(n.Content) > most {
		d.Errorf(key, "has %d entries; at most %d are allowed", len(n.Content), most)
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	for i, item := range n.Content {
		list = reflect.Append(list, d.element(item, v.Type().Elem(), At(key, i), item.Line))
	}
	v.Set(list)
}

func (d *decoder) element(n *yaml.Node, t reflect.Type, key string, line int) reflect.Value {
	e := reflect.New(t).Elem()
	setDefaults(e)
	d.value(n, e, key, line, 0)
	return e
}

// pairs calls each for every key of a mapping, and reports keys that aren't text or come twice.
func (d *decoder) pairs(n *yaml.Node, key string,
	each func(name, path string, line int, value *yaml.Node)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode {
			d.Errorf(Join(key, "?"), "line %d has a key that isn't plain text", k.Line)
			continue
		}
		path := Join(key, k.Value)
		if line, twice := first[k.Value]; twice {
			// Not Errorf: the first one may have an error of its own.
			d.errors = append(d.errors, Problem{d.file, k.Line, path,
				fmt.Sprintf("stands here for the second time; the first is on line %d", line)})
			continue
		}
		first[k.Value] = k.Line
		each(k.Value, path, k.Line, n.Content[i+1])
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, key string) {
	text, used, err := expand(n.Value, d.lookup)
	at := d.places[key]
	at.fromEnv = used
	if used {
		at.written = redactedText(v.Type(), n.Value)
	}
	d.places[key] = at
	if err != nil {
		d.Errorf(key, "%v", err)
		return
	}
	_, hidden := v.Interface().(redacted)
	switch err := setScalar(v, text); {
	case err == nil:
	case hidden:
		d.Errorf(key, "%v", err)
	default:
		d.Errorf(key, "%s %v", d.Shown(key, text), err)
	}
}

// isScalar reports whether a type's values are given as one text.
func isScalar(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	return t.Kind() != reflect.Struct && t.Kind() != reflect.Map && t.Kind() != reflect.Slice
}

// setScalar reads text as a value of v's type. Its errors don't show the text.
func setScalar(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		return parse(p, text, units.ParseDuration)
	case *netip.Prefix:
		return parse(p, text, parseNetwork)
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *float64:
		return parse(p, text, parseDecimal)
	case *int64:
		return parse(p, text, parseInt)
	case *int:
		return parse(p, text, func(s string) (int, error) {
			n, err := parseInt(s)
			if err == nil && n != int64(int(n)) {
				err = errTooLarge
			}
			return int(n), err
		})
	case *bool:
		if text != "true" && text != "false" {
			return errors.New("must be true or false")
		}
		*p = text == "true"
		return nil
	}
	if text == "" {
		return errors.New("is empty; write a value, or leave the key out")
	}
	v.SetString(text)
	return nil
}

func parse[T any](p *T, text string, parser func(string) (T, error)) error {
	value, err := parser(text)
	if err == nil {
		*p = value
	}
	return err
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_+-]+$`)

// Join returns the path of a key inside another. A name that could be taken for a path is quoted.
func Join(key, name string) string {
	if !plainName.MatchString(name) {
		name = Quote(name)
	}
	if key == "" {
		return name
	}
	return key + "." + name
}

// At returns the path of an element of the list at key.
func At(key string, n int) string { return key + "[" + strconv.Itoa(n) + "]" }
