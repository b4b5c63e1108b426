package httpapi

import (
	"net/http"
	"strings"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/web"
)

// maxIdempotencyKey bounds a key in characters; a UUID has 36.
const maxIdempotencyKey = 255

// idempotencyKey returns a request's Idempotency-Key; "" if it has none. The key comes as a quoted
// string (the IETF's draft: RFC 9651, section 3.3.3) or bare, as most clients send it: both
// spellings are the same key.
func idempotencyKey(h http.Header) (string, error) {
	lines := h[api.HeaderIdempotencyKey]
	switch len(lines) {
	case 0:
		return "", nil
	case 1:
		if key, ok := parseIdempotencyKey(lines[0]); ok {
			return key, nil
		}
	}
	return "", web.Problem(http.StatusBadRequest, api.CodeInvalidIdempotencyKey,
		"Send one Idempotency-Key of 1 to 255 characters: letters, digits and _.:~- bare, "+
			"or any visible ASCII and spaces in double quotes.")
}

func parseIdempotencyKey(line string) (string, bool) {
	line = strings.Trim(line, " \t")
	if !strings.HasPrefix(line, `"`) {
		for i := range len(line) {
			if !bareKeyByte(line[i]) {
				return "", false
			}
		}
		return line, line != "" && len(line) <= maxIdempotencyKey
	}
	var key strings.Builder
	for i := 1; i < len(line); i++ {
		b := line[i]
		switch {
		case b == '"':
			return key.String(), i == len(line)-1 && key.Len() > 0 && key.Len() <= maxIdempotencyKey
		case b == '\\':
			if i++; i == len(line) || line[i] != '"' && line[i] != '\\' {
				return "", false
			}
			b = line[i]
		case b < ' ' || b > '~':
			return "", false
		}
		key.WriteByte(b)
	}
	return "", false
}

func bareKeyByte(b byte) bool {
	switch {
	case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		return true
	}
	return strings.IndexByte("_.:~-", b) >= 0
}
