package leaky

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/forebay/forebay/internal/units"
)

// Override is a live change of settings. A nil field isn't changed.
//
// Its fields are the whole list of what can be set live: each has a setting of the same name in
// Settings, whose bounds are its own, and a name in the API, in Redis and in the log. What reads,
// writes and reports overrides goes by that list; only what a setting does is up to the scripts.
type Override struct {
	Rate        *Rate         `name:"rate"`
	Burst       *int          `name:"burst"`
	Concurrency *int          `name:"concurrency"`
	Capacity    *int          `name:"capacity"`
	Paused      *bool         `name:"paused"`
	Feedback    *units.Switch `name:"feedback"`
}

// tunable is one field of Override.
type tunable struct {
	name    string
	field   int   // in Override
	setting []int // in Settings
	most    int   // the largest number that is allowed
}

var tunables = func() (all []tunable) {
	override, settings := reflect.TypeFor[Override](), reflect.TypeFor[Settings]()
	for i := range override.NumField() {
		f := override.Field(i)
		setting, _ := settings.FieldByName(f.Name)
		_, most, _ := strings.Cut(setting.Tag.Get("range"), " to ")
		n, _ := strconv.Atoi(most) // numbers alone have bounds
		all = append(all, tunable{f.Tag.Get("name"), i, setting.Index, n})
	}
	return all
}()

func (t tunable) of(o *Override) reflect.Value { return reflect.ValueOf(o).Elem().Field(t.field) }

// Tunables returns the names of all settings that can be set live.
func Tunables() (names []string) {
	for _, t := range tunables {
		names = append(names, t.name)
	}
	return names
}

// Field points to the field of a name; most is the largest number that it may have. nil: there is
// no such field.
func (o *Override) Field(name string) (field any, most int) {
	for _, t := range tunables {
		if t.name == name {
			return t.of(o).Addr().Interface(), t.most
		}
	}
	return nil, 0
}

// Names returns the names of the fields that are set.
func (o Override) Names() (names []string) {
	for _, t := range tunables {
		if !t.of(&o).IsNil() {
			names = append(names, t.name)
		}
	}
	return names
}

// Apply returns the settings with the override in force.
func (o Override) Apply(s Settings) Settings {
	for _, t := range tunables {
		if v := t.of(&o); !v.IsNil() {
			reflect.ValueOf(&s).Elem().FieldByIndex(t.setting).Set(v.Elem())
		}
	}
	return s
}

// Text is the tunable setting of a name as the API and the config have it.
func (s Settings) Text(name string) string {
	for _, t := range tunables {
		if t.name == name {
			return fmt.Sprint(reflect.ValueOf(s).FieldByIndex(t.setting).Interface())
		}
	}
	return ""
}

// arguments are the fields that are set as tune.lua takes them. An empty text takes an override
// back.
func (o Override) arguments() (args []any, err error) {
	for _, t := range tunables {
		field := t.of(&o)
		if field.IsNil() {
			continue
		}
		var value any
		switch v := field.Elem().Interface().(type) {
		case Rate:
			if v == (Rate{}) {
				return nil, fmt.Errorf("%s must not be empty", t.name)
			}
			value = v.String()
			args = append(args, "interval", strconv.FormatFloat(v.Interval(), 'f', -1, 64))
		case int:
			if v < 1 || v > t.most {
				return nil, fmt.Errorf("%s must be from 1 to %d, not %d", t.name, t.most, v)
			}
			value = v
		case bool:
			value = ""
			if v {
				value = flag(v)
			}
		case units.Switch:
			value = flag(bool(v))
		}
		args = append(args, t.name, value)
	}
	return args, nil
}

// set sets the field of a name, if there is one, from what tune.lua has kept.
func (o *Override) set(name, text string) error {
	for _, t := range tunables {
		if t.name == name && text != "" {
			return t.read(o, text)
		}
	}
	return nil
}

// read sets the field of t from what tune.lua has kept.
func (t tunable) read(o *Override, text string) (err error) {
	switch to := t.of(o).Addr().Interface().(type) {
	case **Rate:
		*to = new(Rate)
		err = (*to).UnmarshalText([]byte(text))
	case **int:
		*to = new(int)
		**to, err = strconv.Atoi(text)
	case **bool:
		*to = new(text == "1")
	case **units.Switch:
		*to = new(units.Switch(text == "1"))
	}
	return err
}
