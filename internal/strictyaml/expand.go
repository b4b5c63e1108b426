package strictyaml

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// onlyVariable matches text that is one variable and nothing else.
var onlyVariable = regexp.MustCompile(`^\$\{[A-Za-z0-9_]+\}$`)

// expand replaces each ${NAME} by its value, and $${ by ${. It is applied to one scalar after the
// YAML was parsed, and not to the values that it inserts. used reports whether there was a
// variable.
func expand(text string, lookup func(string) (string, bool)) (
	expanded string, used bool, err error) {
	var out strings.Builder
	for {
		at := strings.Index(text, "${")
		if at < 0 {
			out.WriteString(text)
			return out.String(), used, nil
		}
		if at > 0 && text[at-1] == '$' {
			out.WriteString(text[:at-1] + "${")
			text = text[at+2:]
			continue
		}
		out.WriteString(text[:at])
		name, rest, closed := strings.Cut(text[at+2:], "}")
		if !closed || !variableName.MatchString(name) {
			return "", true, errors.New("has a ${ that isn't followed by the name of a variable " +
				"and }; write ${NAME}, or $${ for a plain ${")
		}
		value, ok := lookup(name)
		if !ok {
			return "", true, fmt.Errorf("needs the environment variable %s, which is not "+
				"set", Quote(name))
		}
		out.WriteString(value)
		text, used = rest, true
	}
}
