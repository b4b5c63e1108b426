package strictyaml_test

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

// house is a file of some size.
type house struct {
	Name   string            `key:"name"`
	Rooms  map[string]room   `key:"rooms" max:"3"`
	Doors  []door            `key:"doors" max:"2"`
	Alarm  alarm             `key:"alarm" absent:"no alarm"`
	Tenant strictyaml.Secret `key:"tenant"`

	basement
}

// basement is promoted.
type basement struct {
	Depth float64              `key:"depth"`
	Pump  units.Switch         `key:"pump"`
	Feed  strictyaml.SecretURL `key:"feed"`
}

type room struct {
	Floor int           `key:"floor"`
	Heat  time.Duration `key:"heat" default:"1h"`
	Size  units.Size    `key:"size"`
}

// door is the name of a lock, or says more.
type door struct {
	Lock string          `scalar:"the name of a lock, or {code: 1234}"`
	Code int64           `key:"code"`
	Open bool            `key:"open"`
	Sign strictyaml.JSON `key:"sign"`
}

type alarm struct {
	Nets []netip.Prefix `key:"nets" max:"2"`
	Tone tone           `key:"tone"`
}

// tone is a type that reads itself.
type tone byte

func (t *tone) UnmarshalText(text []byte) error {
	if string(text) != "loud" {
		return errors.New("isn't a tone; write loud")
	}
	*t = 'l'
	return nil
}

func (t tone) String() string { return "loud" }

func env(name string) (string, bool) {
	v, ok := map[string]string{"SECRET": "hunter2", "THREE": "3", "URL": "http://hunter2@h",
		"TEXT": "x\ny: z"}[name]
	return v, ok
}

func read(text string) (house, *strictyaml.Report, error) {
	var h house
	r, err := strictyaml.Read("h.yaml", []byte(text), env, &h)
	if err == nil {
		err = r.Err()
	}
	return h, r, err
}

func TestAFileIsReadIntoItsStruct(t *testing.T) {
	t.Parallel()
	h, r, err := read(`
name: ours
rooms: {hall: , attic: {floor: "${THREE}", heat: 1d12h, size: 1.5KiB}}
doors: [oak, {code: 1234, open: true, sign: {b: [1, null, "${TEXT}"], a: 0.5}}]
alarm: {nets: [10.0.0.0/8, "::1"], tone: loud}
tenant: ${SECRET}
depth: 2.5
pump: on
`)
	if err != nil {
		t.Fatal(err)
	}
	want := house{Name: "ours",
		Rooms: map[string]room{"hall": {Heat: time.Hour},
			"attic": {Floor: 3, Heat: 36 * time.Hour, Size: 1536}},
		Doors: []door{{Lock: "oak"},
			{Code: 1234, Open: true, Sign: `{"b":[1,null,"x\ny: z"],"a":0.5}`}},
		Alarm: alarm{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("::1/128")}, Tone: 'l'}, Tenant: "hunter2",
		basement: basement{Depth: 2.5, Pump: true}}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got %+v", h)
	}
	if !r.Given("rooms.attic.heat") || r.Given("rooms.hall.heat") || !r.Scalar("doors[0]") ||
		r.Scalar("doors[1]") ||
		!r.FromEnv("rooms.attic.floor") || r.FromEnv("rooms.attic.heat") ||
		r.OnLine("depth") != " (line 7)" || r.OnLine("x") != "" {
		t.Error("the report doesn't know what the file gives")
	}
	const shown = `name: ours
rooms:
  attic:
    floor: "${THREE}"
    heat: 36h
    size: "1536B"
  hall:
    heat: 1h
doors: [oak, {code: 1234, open: true, sign: {"b":[1,null,"${TEXT}"],"a":0.5}}]
alarm:
  nets: [10.0.0.0/8, "::1/128"]
  tone: loud
tenant: "***"
depth: 2.5
pump: on
`
	if got := strictyaml.Describe(h, r.Written()); got != strings.Replace(shown, `"1536B"`, "1536B",
		1) {
		t.Errorf("described is\n%s", got)
	}
	if got := strictyaml.Describe(house{}, nil); got != "# no alarm: no alarm\npump: off\n" {
		t.Errorf("an empty house is\n%s", got)
	}
}

// Each problem has its line, its key and its mend, and one key has no second one.
func TestWhatIsWrongIsToldAtItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nmae: x": "h.yaml:1: nmae: unknown key; did you mean name?",
		"floor: 1": "h.yaml:1: floor: unknown key; it belongs to " +
			"rooms.<name>: check the indentation",
		"rooms:\n  floor: 1": "h.yaml:2: rooms.floor: belongs to rooms.<name>: check " +
			"the indentation",
		"alarm: {kind: 1}": "h.yaml:1: alarm.kind: unknown key; known here: nets, " +
			"tone",
		"name: a\n\nname: b": "h.yaml:3: name: stands here for the second time; the " +
			"first is on line 1",
		"? [a]\n: 1": `h.yaml: "?": line 1 has a key that isn't plain text`,
		"rooms: [a]": "h.yaml:1: rooms: wants names, each with what belongs " +
			"to it below",
		"doors: a": "h.yaml:1: doors: wants a list, such as [a, b], or " +
			"lines that begin with a dash",
		"alarm: loud": "h.yaml:1: alarm: wants keys of its own: nets, tone",
		"doors: [[oak]]": "h.yaml:1: doors[0]: wants the name of a lock, or " +
			"{code: 1234}",
		"doors: [ ~ ]": "h.yaml:1: doors[0]: has no value; write one, or leave " +
			"the key out",
		"doors: [a, b, c]":            "h.yaml:1: doors: has 3 entries; at most 2 are allowed",
		"rooms: {a: , b: , c: , d: }": "h.yaml:1: rooms: has 4 entries; at most 3 are allowed",
		"name:": "h.yaml:1: name: has no value; write one, or leave the " +
			"key out",
		"name: {a: b}": "h.yaml:1: name: wants one value",
		`name: ""`: `h.yaml:1: name: "" is empty; write a value, or leave ` +
			`the key out`,
		"name: !!str x": `h.yaml:1: name: has a YAML tag ("!!str"), which means ` +
			`nothing here; remove it`,
		"name: ${NONE}": `h.yaml:1: name: needs the environment variable "NONE", ` +
			`which is not set`,
		"alarm: {tone: quiet}": `h.yaml:1: alarm.tone: "quiet" isn't a tone; write loud`,
		`alarm: {tone: "x-${SECRET}"}`: `h.yaml:1: alarm.tone: "x-${SECRET}" (with the ` +
			`environment's value) isn't a tone; write loud`,
		"alarm: {nets: [10.0.0.1/8]}": `h.yaml:1: alarm.nets[0]: "10.0.0.1/8" has bits outside ` +
			`its mask; write zeros there, or the address alone`,
		`tenant: ""`: "h.yaml:1: tenant: is empty; write a value, or leave " +
			"the key out",
		"depth: 1e3": `h.yaml:1: depth: "1e3" isn't a plain number such as 1 or 0.5`,
		"pump: yes":  `h.yaml:1: pump: "yes" isn't a switch; write on`,
		"rooms: {a: {floor: 1.5}}": `h.yaml:1: rooms.a.floor: "1.5" isn't a whole number such as ` +
			`10`,
		"rooms: {a: {heat: 30}}": `h.yaml:1: rooms.a.heat: "30" has no unit; write the number ` +
			`with one, such as 500ms, 30s, 5m, 12h or 7d`,
		"doors: [{sign: .inf}]": `h.yaml:1: doors[0].sign: has ".inf" on line 1, which JSON ` +
			`can't say; write it as JSON has it, or in quotes`,
		"doors: [{sign: &a [*a]}]": "h.yaml:1: doors[0].sign: has an alias (*a) on line 1; " +
			"write out what it stands for",
		"name: a\n\tdepth: 1": "h.yaml:2: isn't YAML: found a tab character that " +
			"violates indentation; indent with spaces, not tabs",
		"name: a\n---\nname: b": "h.yaml:2: a second document begins; keep one config " +
			"in one file",
		"name: a\nalarm: {tone: ${A}}\n": `h.yaml:2: isn't YAML: did not find expected ',' or ` +
			`'}'; inside [ ] and { } write "${NAME}" in quotes`,
	} {
		if _, _, err := read(text); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", text, err, want)
		}
	}
	_, _, err := read("name: a\nrooms: {a: {floor: x, heat: 1}, b: }\npump: maybe")
	want := `h.yaml:2: rooms.a.floor: "x" isn't a whole number such as 10
h.yaml:2: rooms.a.heat: "1" has no unit; write the number with one, such as 500ms, 30s, 5m, 12h or 7d
h.yaml:3: pump: "maybe" isn't a switch; write on or off`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// The rules of a caller are reported at the same places, and not where a value wasn't understood.
func TestACallersRulesAddToTheReport(t *testing.T) {
	t.Parallel()
	_, r, _ := read("rooms:\n  attic: {floor: x}\n  hall: {floor: 9}\nname: ${SECRET}\n")
	r.Errorf("rooms.attic.floor", "is missing")
	strictyaml.Within(r, "rooms.hall.floor", 9, 0, 3)
	r.Errorf("name", "%s is none of ours", r.Shown("name", "hunter2"))
	r.Known("rooms.hall.next", "atic", "loft", []string{"attic", "hall"})
	r.Errorf("doors[0].code", "is required")
	r.Warnf("depth", "is shallow")
	want := `h.yaml: doors[0].code: is required
h.yaml:2: rooms.attic.floor: "x" isn't a whole number such as 10
h.yaml:3: rooms.hall.floor: "9" is out of bounds; write 0 to 3
h.yaml:3: rooms.hall.next: there is no loft "atic"; did you mean attic?
h.yaml:4: name: "${SECRET}" (with the environment's value) is none of ours`
	if err := r.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if w := r.Warnings(); len(w) != 1 || w[0].String() != "h.yaml: depth: is shallow" {
		t.Errorf("warnings %v", w)
	}
	if !r.Failed("rooms.attic.floor") || r.Failed("rooms.attic") ||
		!r.FailedWithin("rooms.attic") || r.FailedWithin("rooms.att") {
		t.Error("the report doesn't know what failed")
	}
}

func TestASecretIsNeverShown(t *testing.T) {
	t.Parallel()
	for text, shown := range map[string]string{
		"feed: ${URL}":                       "feed: \"${URL}\"\n",
		"feed: \"redis://u:${SECRET}@h/?a\"": "feed: \"redis://***@h/?***\"\n",
		"feed: http://u:hunter2@h/":          "feed: \"http://***@h/\"\n",
		"feed: hunter2":                      "feed: \"***\"\n",
		"tenant: hunter2":                    "tenant: \"***\"\n",
		"tenant: a-${SECRET}":                "tenant: \"***\"\n",
	} {
		h, r, err := read(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strictyaml.Describe(h, r.Written()); !strings.Contains(got, shown) ||
			strings.Contains(got, "hunter2") {
			t.Errorf("%s is described as\n%s", text, got)
		}
	}
}

// JSON becomes YAML that has the same values: no text becomes a number, a switch or nothing.
func TestJSONAsYAML(t *testing.T) {
	t.Parallel()
	got, err := strictyaml.FromJSON([]byte(`{"b":[{"name":"yes","n":12345678901234567890},` +
		`{"name":"a: b\n#","list":[],"on":"1"}],"a":{},"none":null}`))
	want := `b:
    - name: "yes"
      "n": 12345678901234567890
    - name: "a: b\n#"
      list: []
      "on": "1"
a: {}
none: null
`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := strictyaml.FromJSON([]byte("a: b")); err == nil {
		t.Error("YAML passes for JSON")
	}
}
