package httpapi

import (
	"strings"
	"testing"
)

func TestIdempotencyKeysParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`8e03978e-40d5-43e8-bc93-6894a57f9324`:   `8e03978e-40d5-43e8-bc93-6894a57f9324`,
		`"8e03978e-40d5-43e8-bc93-6894a57f9324"`: `8e03978e-40d5-43e8-bc93-6894a57f9324`,
		` "a b" `:                                `a b`,
		`"a\"b\\c"`:                              `a"b\c`,
		strings.Repeat("x", 255):                 strings.Repeat("x", 255),
		`A_.:~-9`:                                `A_.:~-9`,
		``:                                       "",
		`""`:                                     "",
		`"`:                                      "",
		`"a`:                                     "",
		`a"`:                                     "",
		`"a"b`:                                   "",
		`"a";p=1`:                                "",
		`"a\b"`:                                  "",
		`"a\`:                                    "",
		"\"a\tb\"":                               "",
		`"ü"`:                                    "",
		`ü`:                                      "",
		`a,b`:                                    "",
		`a/b`:                                    "",
		strings.Repeat("x", 256):                 "",
		`"` + strings.Repeat(`\"`, 256) + `"`:    "",
	} {
		key, ok := parseIdempotencyKey(line)
		if ok != (want != "") || ok && key != want {
			t.Errorf("%.40q: %q, %v, want %q", line, key, ok, want)
		}
	}
}
