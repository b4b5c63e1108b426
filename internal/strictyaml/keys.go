package strictyaml

import (
	"reflect"
	"strings"
)

// keysOf lists the keys of a struct in its order.
func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(t) {
		if key := f.Tag.Get("key"); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// scalarField is the field that takes the whole of a struct that may also be given as one value.
func scalarField(t reflect.Type) (field reflect.StructField, takes bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("scalar") != "" {
			return f, true
		}
	}
	return field, false
}

// suggest is the mend for an unknown key of a struct: the nearest one it has, otherwise where in the
// file (root) a key of that name belongs, otherwise those that it has.
func suggest(name string, t, root reflect.Type) string {
	if near := nearest(name, keysOf(t)); near != "" {
		return "; did you mean " + near + "?"
	}
	if elsewhere := holders(name, root, ""); len(elsewhere) > 0 {
		return "; it belongs to " + strings.Join(elsewhere, " or ") + ": check the indentation"
	}
	return "; known here: " + strings.Join(keysOf(t), ", ")
}

// holders lists what in the structs below t has a key of that name.
func holders(name string, t reflect.Type, path string) []string {
	var found []string
	for _, f := range reflect.VisibleFields(t) {
		key := f.Tag.Get("key")
		if key == "" {
			continue // its fields are promoted, or it isn't given by a key
		}
		if key == name {
			if path == "" {
				found = append(found, "the top level")
			} else {
				found = append(found, path)
			}
		}
		below, at := f.Type, key
		if path != "" {
			at = path + "." + key
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

// nearest returns the one of names that a slip of the keyboard makes name of, or "".
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
// If the lengths alone differ by limit or more it is limit, so a long name costs nothing.
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
