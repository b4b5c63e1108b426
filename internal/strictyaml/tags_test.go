package strictyaml_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/units"
)

// garden has everything that tags say of values.
type garden struct {
	Path  string         `key:"path" required:"the way in, such as /gate"`
	Trees int            `key:"trees" default:"3" range:"1 to 9"`
	Water time.Duration  `key:"water" default:"1m30s" range:"1s to 7d"`
	Soil  units.Size     `key:"soil" range:"1KiB to 1MiB" absent:"none"`
	Sun   float64        `key:"sun" default:"0.5" range:"0.1 to 1"`
	Kind  string         `key:"kind" default:"wild" words:"wild, tame"`
	Days  []int          `key:"days" max:"5" default:"[1, 7]" range:"1 to 7"`
	Beds  map[string]bed `key:"beds" max:"9"`
	Pond  pond           `key:"pond" absent:"no pond"`
	Fence fence          `key:"fence" default:"low"`
	Rules []fence        `key:"rules" max:"3" default:"[low, {height: 2}]"`
	Shed  struct {
		Open bool `key:"open" default:"true"`
	} `key:"shed"`
}

type bed struct {
	Name string `key:"name" required:""`
	Rows int    `key:"rows" default:"2" range:"1 to 4"`
}

type pond struct {
	Depth float64 `key:"depth" required:"how deep"`
	Fish  int     `key:"fish" default:"5"`
}

type fence struct {
	Word   string `scalar:"low, high or {height: 1}" words:"low, high"`
	Height int    `key:"height" range:"1 to 3"`
	Gates  int    `key:"gates" default:"1"`
}

func TestDefaultsHoldWhereNothingIsGiven(t *testing.T) {
	t.Parallel()
	want := garden{Trees: 3, Water: 90 * time.Second, Sun: 0.5, Kind: "wild", Days: []int{1, 7},
		Fence: fence{Word: "low"},
		Rules: []fence{{Word: "low"}, {Height: 2, Gates: 1}}}
	want.Shed.Open = true
	var g garden
	strictyaml.SetDefaults(&g)
	if !reflect.DeepEqual(g, want) {
		t.Errorf("got %+v", g)
	}
	if _, err := strictyaml.Read("g", []byte("beds: {a: {rows: 3}, b: }\npond: \nfence: {height: "+
		"3}\nshed: {open: false}\ndays: []\nrules: [high]"), env, &g); err != nil {
		t.Fatal(err)
	}
	want.Beds = map[string]bed{"a": {Rows: 3}, "b": {Rows: 2}}
	want.Pond, want.Fence, want.Days, want.Rules = pond{Fish: 5}, fence{Height: 3,
		Gates: 1}, []int{}, []fence{{Word: "high"}}
	want.Shed.Open = false
	if !reflect.DeepEqual(g, want) {
		t.Errorf("got %+v", g)
	}
}

func TestBoundsAndWordsAreCheckedInFilesAndInCode(t *testing.T) {
	t.Parallel()
	read := func(text string) *strictyaml.Report {
		var g garden
		strictyaml.SetDefaults(&g)
		r, err := strictyaml.Read("g", []byte(text), env, &g)
		if err != nil {
			t.Fatal(err)
		}
		r.Check(g)
		return r
	}
	if err := read("path: /\ntrees: 9\nsoil: 1MiB\nbeds: {a: {name: x}}\npond: {depth: " +
		"1}\nfence: high").Err(); err != nil {
		t.Error(err)
	}
	err := read(`
trees: 10
water: 0s
soil: 0B
sun: 1.5
kind: "${SECRET}"
days: [1, 8]
beds: {a: {rows: 0}}
pond: {}
fence: tall
rules: [{height: 4}, low, {height: x}]
`).Err()
	want := `g: path: is required: the way in, such as /gate
g:2: trees: "10" is out of bounds; write 1 to 9
g:3: water: "0s" is out of bounds; write 1s to 7d
g:4: soil: "0B" is out of bounds; write 1KiB to 1MiB
g:5: sun: "1.5" is out of bounds; write 0.1 to 1
g:6: kind: "${SECRET}" (with the environment's value) is none of wild, tame
g:7: days[1]: "8" is out of bounds; write 1 to 7
g:8: beds.a.name: is required
g:8: beds.a.rows: "0" is out of bounds; write 1 to 4
g:9: pond.depth: is required: how deep
g:10: fence: "tall" is none of low, high
g:11: rules[0].height: "4" is out of bounds; write 1 to 3
g:11: rules[2].height: "x" isn't a whole number such as 10`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}

	g := garden{Trees: 12, Fence: fence{Word: "low"}, Kind: "odd"}
	r := strictyaml.NewReport("")
	r.Check(g)
	want = `kind: "odd" is none of wild, tame
path: is required: the way in, such as /gate
sun: "0" is out of bounds; write 0.1 to 1
trees: "12" is out of bounds; write 1 to 9
water: "0s" is out of bounds; write 1s to 7d`
	if err := r.Err(); err == nil || err.Error() != want {
		t.Errorf("in code: got\n%v\nwant\n%s", err, want)
	}
}
