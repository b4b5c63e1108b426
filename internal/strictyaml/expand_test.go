package strictyaml

import (
	"strings"
	"testing"
)

func TestVariablesAreReplacedOnce(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"A": "1", "B_2": "two", "NESTED": "${A}", "_x": "x", "EMPTY": ""}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for text, want := range map[string]string{
		"":                    "",
		"plain $5 {A} $A $":   "plain $5 {A} $A $",
		"${A}":                "1",
		"a${A}b${B_2}${_x}":   "a1btwox",
		"${NESTED}":           "${A}", // what a variable holds is not read again
		"$${A}":               "${A}",
		"$$${A}":              "$${A}",
		"$${A} ${A} $${":      "${A} 1 ${",
		"[${EMPTY}]":          "[]",
		"${A}$${A}${A}":       "1${A}1",
		"$${" + "${A}" + "}}": "${1}}",
	} {
		if got, _, err := expand(text, lookup); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"x${MISSING}": `needs the environment variable "MISSING", which is not set`,
		"${":          "has a ${ that isn't", "${}": "has a ${ that isn't",
		"${A": "has a ${ that isn't", "${1A}": "has a ${ that isn't",
		"${A B}": "has a ${ that isn't", "${A:-b}": "has a ${ that isn't",
		"${A${A}}": "has a ${ that isn't",
	} {
		if got, _, err := expand(text, lookup); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
}
