package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// JSON is a JSON text that a config gives as YAML.
type JSON string

// maxNesting bounds how deep a JSON value may be nested: no sensible answer is deeper.
const maxNesting = 32

// json writes a YAML value as JSON, its members in their order.
func (d *decoder) json(n *yaml.Node, out *JSON, key string) {
	fromEnv := false
	text, err := appendJSON(nil, n, maxNesting, func(text string) (string, error) {
		text, used, err := expand(text, d.lookup)
		fromEnv = fromEnv || used
		return text, err
	})
	if err != nil {
		d.Errorf(key, "%v", err)
		return
	}
	*out = JSON(text)
	if fromEnv {
		at := d.places[key]
		asIs := func(text string) (string, error) { return text, nil }
		shown, _ := appendJSON(nil, n, maxNesting, asIs)
		at.fromEnv, at.written = true, string(shown)
		d.places[key] = at
	}
}

// appendJSON appends n to out, with each of its texts expanded.
func appendJSON(out []byte, n *yaml.Node, depth int, expand func(string) (string, error)) (
	[]byte, error) {
	if depth == 0 {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxNesting)
	}
	var err error
	switch n.Kind {
	case yaml.AliasNode: // a few of them can stand for gigabytes
		return nil, fmt.Errorf("has an alias (*%s) on line %d; write out what it stands "+
			"for", n.Value, n.Line)
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, item := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendJSON(out, item, depth-1, expand); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case yaml.MappingNode:
		out = append(out, '{')
		named := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i]
			if name.Kind != yaml.ScalarNode || named[name.Value] {
				return nil, fmt.Errorf("has a key on line %d that isn't plain text or stands "+
					"there twice", name.Line)
			}
			named[name.Value] = true
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendText(out, name.Value), ':')
			if out, err = appendJSON(out, n.Content[i+1], depth-1, expand); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	}
	switch n.Tag {
	case "!!null":
		return append(out, "null"...), nil
	case "!!bool", "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return append(out, n.Value...), nil
		}
		return nil, fmt.Errorf("has %s on line %d, which JSON can't say; write it as JSON has it, "+
			"or in quotes", Quote(n.Value), n.Line)
	case "!!str", "!!timestamp":
		text, err := expand(n.Value)
		if err != nil {
			return nil, fmt.Errorf("on line %d: %w", n.Line, err)
		}
		return appendText(out, text), nil
	}
	return nil, errors.New("has a YAML tag (" + Quote(n.Tag) + "), which means nothing here; " +
		"remove it")
}

// appendText writes a string. A JSON text of strings can't fail.
func appendText(out []byte, text string) []byte {
	quoted, _ := json.Marshal(text)
	return append(out, quoted...)
}

// switches are names that other readers of YAML take for switches.
var switches = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off)$`)

// FromJSON writes a JSON text as YAML for people to read: its members in their order, and no text
// that YAML would take for another type. An error says that it isn't JSON.
func FromJSON(text []byte) ([]byte, error) {
	var n yaml.Node
	if !json.Valid(text) {
		return nil, errors.New("it isn't JSON")
	}
	if err := yaml.Unmarshal(text, &n); err != nil {
		return nil, err
	}
	var block func(*yaml.Node)
	block = func(n *yaml.Node) {
		n.Style &^= yaml.FlowStyle // texts keep JSON's quotes
		for i, inner := range n.Content {
			block(inner)
			if n.Kind == yaml.MappingNode && i%2 == 0 && !switches.MatchString(inner.Value) {
				inner.Style = 0
			}
		}
	}
	block(&n)
	return yaml.Marshal(&n)
}
