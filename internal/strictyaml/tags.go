package strictyaml

import (
	"iter"
	"reflect"
	"slices"
	"strings"
)

// SetDefaults sets the defaults that the tags of the struct that v points to define. A struct that
// may be left out as a whole stays as it is: its defaults apply only if the file gives it.
func SetDefaults(v any) { setDefaults(reflect.ValueOf(v).Elem()) }

// setDefaults sets them unless the struct may also be given as a single value: then its defaults
// apply only if it is given by keys.
func setDefaults(v reflect.Value) {
	if v.Kind() == reflect.Struct && !isScalar(v.Type()) && shapeOf(v.Type()).whole == nil {
		setFields(v)
	}
}

func setFields(v reflect.Value) {
	d := decoder{Report: NewReport("")}
	for _, f := range shapeOf(v.Type()).fields {
		switch value := v.FieldByIndex(f.index); {
		case f.preset != nil:
			d.value(f.preset, value, f.key, 0, f.most)
		case !f.optional():
			setDefaults(value)
		}
	}
	if err := d.Err(); err != nil {
		panic("strictyaml: a default of " + v.Type().String() + ": " + err.Error())
	}
}

// Check adds an error for each value of the struct v, and of maps and lists in it, that breaks its
// tags required, range or words. The report must be that of v.
func (r *Report) Check(v any) { r.checkStruct("", reflect.ValueOf(v)) }

func (r *Report) checkStruct(key string, v reflect.Value) {
	for _, f := range shapeOf(v.Type()).fields {
		at, value := f.key, v.FieldByIndex(f.index)
		if key != "" {
			at = key + "." + f.key
		}
		if value.IsZero() && (f.required || f.absent != "") && !r.Given(at) {
			if f.required {
				r.Errorf(at, "is required%s", f.missing)
			}
			continue
		}
		r.checkValue(at, value, &f)
	}
}

func (r *Report) checkValue(key string, v reflect.Value, f *field) {
	switch {
	case isScalar(v.Type()):
		if f.bounds != nil && !f.bounds.hold(v) {
			r.Errorf(key, "%s is out of bounds; write "+
				"%s", r.Shown(key, v.Interface()), f.bounds.text)
		}
		if f.words != nil && !slices.Contains(f.words, v.String()) {
			r.Errorf(key, "%s is none of %s", r.Shown(key, v.Interface()),
				strings.Join(f.words, ", "))
		}
	case v.Kind() == reflect.Map:
		for name, element := range elements(v) {
			r.checkValue(Join(key, name), element, f)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			r.checkValue(At(key, i), v.Index(i), f)
		}
	default:
		whole := shapeOf(v.Type()).whole
		if whole != nil && (r.Scalar(key) || !v.FieldByIndex(whole.index).IsZero()) {
			r.checkValue(key, v.FieldByIndex(whole.index), whole)
		} else {
			r.checkStruct(key, v)
		}
	}
}

// elements returns the elements of a map from names, sorted, so that the same file gives the same
// text.
func elements(v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		})
		for _, key := range keys {
			if !yield(key.String(), v.MapIndex(key)) {
				return
			}
		}
	}
}
