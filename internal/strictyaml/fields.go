package strictyaml

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// field is a field of a struct that has a key in the file, as its tags define it.
type field struct {
	index    []int
	kind     reflect.Type
	key      string
	absent   string
	most     int
	preset   *yaml.Node // nil: none
	bounds   *bounds    // nil: none
	words    []string
	required bool
	missing  string // the rest of the sentence that reports it as missing
}

// bounds are those of a value, or of each value in a list.
type bounds struct {
	least, most reflect.Value
	text        string
}

// shape is the tags of a struct.
type shape struct {
	fields []field
	whole  *field // takes a value in place of the struct; nil: the struct is no value
	forms  string // of such a value
}

var shapes sync.Map // reflect.Type → *shape

// shapeOf returns what a struct's tags say, and reads them once. It panics on an invalid tag, which
// is a fault of the program.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := &shape{}
	for _, f := range reflect.VisibleFields(t) {
		forms, whole := f.Tag.Lookup("scalar")
		key := f.Tag.Get("key")
		if key == "" && !whole {
			continue // embedded, or not given by the file
		}
		out := field{index: f.Index, kind: f.Type, key: key, absent: f.Tag.Get("absent")}
		out.most, _ = strconv.Atoi(f.Tag.Get("max")) // only maps and lists have one
		if text := f.Tag.Get("default"); text != "" {
			var document yaml.Node
			if err := yaml.Unmarshal([]byte(text), &document); err != nil {
				panic(fmt.Sprintf("strictyaml: the default of %v.%s: %v", t, f.Name, err))
			}
			out.preset = document.Content[0]
		}
		if text := f.Tag.Get("range"); text != "" {
			out.bounds = boundsOf(f.Type, text)
		}
		if text := f.Tag.Get("words"); text != "" {
			out.words = strings.Split(text, ", ")
		}
		if out.missing, out.required = f.Tag.Lookup("required"); out.missing != "" {
			out.missing = ": " + out.missing
		}
		if whole {
			s.whole, s.forms = &out, forms
		} else {
			s.fields = append(s.fields, out)
		}
	}
	known, _ := shapes.LoadOrStore(t, s)
	return known.(*shape)
}

// boundsOf reads "1 to 10", for a type or the elements of a list of it.
func boundsOf(t reflect.Type, text string) *bounds {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	least, most, _ := strings.Cut(text, " to ")
	b := &bounds{reflect.New(t).Elem(), reflect.New(t).Elem(), text}
	if setScalar(b.least, least) != nil || setScalar(b.most, most) != nil {
		panic(fmt.Sprintf("strictyaml: %q isn't a range of %v", text, t))
	}
	return b
}

// hold reports whether a value is within the bounds.
func (b *bounds) hold(v reflect.Value) bool {
	if v.CanFloat() {
		return v.Float() >= b.least.Float() && v.Float() <= b.most.Float()
	}
	return v.Int() >= b.least.Int() && v.Int() <= b.most.Int()
}

// optional reports whether the field is a struct that may be left out as a whole.
func (f *field) optional() bool {
	return f.absent != "" && f.kind.Kind() == reflect.Struct && !isScalar(f.kind)
}

// keys returns the keys of a struct, in its order.
func (s *shape) keys() []string {
	keys := make([]string, len(s.fields))
	for i, f := range s.fields {
		keys[i] = f.key
	}
	return keys
}

// find returns the field of a key, or nil.
func (s *shape) find(key string) *field {
	for i := range s.fields {
		if s.fields[i].key == key {
			return &s.fields[i]
		}
	}
	return nil
}

// suggest returns the correction for an unknown key of a struct: the nearest key that the struct
// has, otherwise where in the file (root) a key of that name belongs, otherwise the struct's keys.
func suggest(name string, t, root reflect.Type) string {
	keys := shapeOf(t).keys()
	if near := nearest(name, keys); near != "" {
		return "; did you mean " + near + "?"
	}
	if elsewhere := holders(name, root, ""); len(elsewhere) > 0 {
		return "; it belongs to " + strings.Join(elsewhere, " or ") + ": check the indentation"
	}
	return "; known here: " + strings.Join(keys, ", ")
}

// holders lists the structs below t that have a key of that name.
func holders(name string, t reflect.Type, path string) []string {
	var found []string
	for _, f := range shapeOf(t).fields {
		below, at := f.kind, f.key
		if path != "" {
			at = path + "." + f.key
		}
		if f.key == name {
			found = append(found, orTop(path))
		}
		switch below.Kind() {
		case reflect.Map:
			below, at = below.Elem(), at+".<name>"
		case reflect.Slice:
			below, at = below.Elem(), at+"[]"
		}
		if below.Kind() == reflect.Struct && !isScalar(below) {
			found = append(found, holders(name, below, at)...)
		}
	}
	return found
}

func orTop(path string) string {
	if path == "" {
		return "the top level"
	}
	return path
}

// nearest returns the one of names that differs from name by a typing mistake, or "".
func nearest(name string, names []string) string {
	best, found := max(1, len(name)/3)+1, ""
	for _, n := range names {
		if d := distance(strings.ToLower(name), n, best); d < best {
			best, found = d, n
		}
	}
	return found
}

// distance counts the letters to add, drop, change or swap with their neighbour to get from a to b.
// If the lengths differ by limit or more, it is limit, so a long name costs nothing.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := 1; j <= len(b); j++ {
			if i == 0 {
				rows[i][j] = j
				continue
			}
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
