package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder brings a YAML tree into Config's structs. They say what is known: a key by its `key` tag,
// the most elements of a map or list by `max`. The structs are no deeper than they are written,
// so neither is the walk, whatever aliases the file has.
type decoder struct {
	*report
	lookup func(string) (string, bool)
	root   reflect.Type // of the whole file
}

// defaulter is an element of a map or list that has defaults of its own.
type defaulter interface{ setDefaults() }

// value reads n, given on a line under a key, into v.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string, line, most int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode {
		d.places[key] = place{line: line, text: n.Value}
	} else {
		d.places[key] = place{line: line}
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.errorf(key, "has a YAML tag (%s), which means nothing here; remove it", brief(n.Tag))
		return
	}
	empty := n.Kind == yaml.ScalarNode && n.Tag == "!!null"
	switch kind := v.Kind(); {
	case v.Type() == reflect.TypeFor[Cost]():
		d.cost(n, v.Addr().Interface().(*Cost), key, empty)
	case v.Type() == reflect.TypeFor[Step]():
		d.step(n, v.Addr().Interface().(*Step), key, empty)
	case v.Type() == reflect.TypeFor[JSON]():
		d.json(n, v.Addr().Interface().(*JSON), key)
	case kind == reflect.Struct && v.Type() != reflect.TypeFor[netip.Prefix]():
		if d.wants(n, yaml.MappingNode, empty, key, "wants keys of its own: "+strings.Join(keysOf(v.Type()), ", ")) {
			d.structure(n, v, key)
		}
	case kind == reflect.Map:
		if d.wants(n, yaml.MappingNode, empty, key, "wants names, each with what belongs to it below") {
			d.mapping(n, v, key, most)
		}
	case kind == reflect.Slice:
		if d.wants(n, yaml.SequenceNode, false, key, "wants a list, such as [a, b], or lines that begin with a dash") {
			d.list(n, v, key, most)
		}
	case empty:
		d.errorf(key, "has no value; write one, or leave the key out")
	default:
		if d.wants(n, yaml.ScalarNode, false, key, "wants one value") {
			d.scalar(n, v, key)
		}
	}
}

// wants reports whether n is of a kind; what is empty may stand for no keys at all.
func (d *decoder) wants(n *yaml.Node, kind yaml.Kind, empty bool, key, text string) bool {
	if n.Kind != kind && !empty {
		d.errorf(key, "%s", text)
	}
	return n.Kind == kind
}

// cost reads what may be a number, or say where one is.
func (d *decoder) cost(n *yaml.Node, c *Cost, key string, empty bool) {
	switch {
	case empty:
		d.errorf(key, "has no value; write one, or leave the key out")
	case n.Kind == yaml.ScalarNode:
		d.scalar(n, reflect.ValueOf(&c.Fixed).Elem(), key)
	case d.wants(n, yaml.MappingNode, false, key, "wants a number, or {from: /pages, default: 1, max: 100}"):
		*c = Cost{Default: 1}
		d.structure(n, reflect.ValueOf(c).Elem(), key)
	}
}

// step reads what may be a word, or a mapping of one key.
func (d *decoder) step(n *yaml.Node, s *Step, key string, empty bool) {
	switch {
	case empty:
		d.errorf(key, "has no value; write one, or leave it out")
	case n.Kind == yaml.ScalarNode:
		d.scalar(n, reflect.ValueOf(&s.Word).Elem(), key)
	case d.wants(n, yaml.MappingNode, false, key, "wants stale, reject, {operation: name} or {body: {...}}"):
		d.structure(n, reflect.ValueOf(s).Elem(), key)
		if len(n.Content) != 2 {
			d.errorf(key, "wants one of operation and body")
		}
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, key string) {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		if key := f.Tag.Get("key"); key != "" {
			fields[key] = f
		}
	}
	d.pairs(n, key, func(name, path string, line int, value *yaml.Node) {
		f, ok := fields[name]
		if !ok {
			d.places[path] = place{line: line}
			d.errorf(path, "unknown key%s", suggest(name, v.Type(), d.root))
			return
		}
		d.value(value, v.FieldByIndex(f.Index), path, line, most(f))
	})
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string, most int) {
	if len(n.Content)/2 > most {
		d.errorf(key, "has %d entries; at most %d are allowed", len(n.Content)/2, most)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	elements := v.Type().Elem()
	d.pairs(n, key, func(name, path string, line int, value *yaml.Node) {
		// A value where a thing should be, under the name of a key: it stands too far left.
		if value.Kind == yaml.ScalarNode && value.Tag != "!!null" && elements.Kind() == reflect.Struct {
			if at := holders(name, d.root, ""); len(at) > 0 {
				d.places[path] = place{line: line}
				d.errorf(path, "belongs to %s: check the indentation", strings.Join(at, " or "))
				return
			}
		}
		v.SetMapIndex(reflect.ValueOf(name), d.element(value, elements, path, line))
	})
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, key string, most int) {
	if len(n.Content) > most {
		d.errorf(key, "has %d entries; at most %d are allowed", len(n.Content), most)
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	for i, item := range n.Content {
		list = reflect.Append(list, d.element(item, v.Type().Elem(), fmt.Sprintf("%s[%d]", key, i), item.Line))
	}
	v.Set(list)
}

func (d *decoder) element(n *yaml.Node, t reflect.Type, key string, line int) reflect.Value {
	e := reflect.New(t)
	if has, ok := e.Interface().(defaulter); ok {
		has.setDefaults()
	}
	d.value(n, e.Elem(), key, line, 0)
	return e.Elem()
}

// pairs calls each for every key of a mapping, and reports those that are no text or come twice.
func (d *decoder) pairs(n *yaml.Node, key string, each func(name, path string, line int, value *yaml.Node)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode {
			d.errorf(join(key, "?"), "line %d has a key that isn't plain text", k.Line)
			continue
		}
		path := join(key, k.Value)
		if line, twice := first[k.Value]; twice {
			// Not errorf: the first one may have been found wrong too, and that is another matter.
			d.errors = append(d.errors, Problem{d.file, k.Line, path, fmt.Sprintf("stands here for the second time; the first is on line %d", line)})
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
	switch {
	case v.Type() == reflect.TypeFor[Secret]() || !used:
	case v.Type() == reflect.TypeFor[SecretURL]() && !onlyVariable.MatchString(n.Value):
		at.written = SecretURL(n.Value).String()
	default:
		at.written = n.Value
	}
	d.places[key] = at
	if err != nil {
		d.errorf(key, "%v", err)
		return
	}
	switch err := setScalar(v, text); {
	case err == nil:
	case secret(v.Type()):
		d.errorf(key, "%v", err)
	default:
		d.errorf(key, "%s %v", d.shown(key, text), err)
	}
}

// secret reports whether a value of this type may be secret, so that no message shows it.
func secret(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Secret](), reflect.TypeFor[SecretURL](), reflect.TypeFor[Digest]():
		return true
	}
	return false
}

// setScalar reads text as v's type has it. Its errors don't show the text.
func setScalar(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		return parse(p, text, parseDuration)
	case *Window:
		return parse(p, text, parseWindow)
	case *Switch:
		return parse(p, text, parseSwitch)
	case *Size:
		return parse(p, text, parseSize)
	case *netip.Prefix:
		return parse(p, text, parseNetwork)
	case *Digest:
		return parse(p, text, parseDigest)
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

func most(f reflect.StructField) int {
	n, _ := strconv.Atoi(f.Tag.Get("max")) // only maps and lists have one
	return n
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_+-]+$`)

// join is the path of a key below another. A name that could be taken for a path is quoted.
func join(key, name string) string {
	if !plainName.MatchString(name) {
		name = brief(name)
	}
	if key == "" {
		return name
	}
	return key + "." + name
}
