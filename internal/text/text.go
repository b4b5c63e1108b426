// Package text writes the admin API's answers as text for a terminal: one function for each type,
// used by the calls' format=text and by the command forebay.
package text

import (
	"strings"
	"unicode"
)

// Clean returns s as one line that a terminal shows as it is: control characters, characters that
// turn the direction of writing, other invisible ones and invalid UTF-8 become U+FFFD. Everything
// that a client, a backend or an operator has named must go through it.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
