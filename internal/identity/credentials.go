package identity

import (
	"net/http"
	"strings"
)

// maxKey bounds a key, in bytes. Real keys have 20 to 200. Without a bound, a caller could make the
// process hash as much as fits into a request's headers.
const maxKey = 512

// credentials returns the one key that a request presents. presented is false if it carries no
// credentials at all. Credentials that aren't exactly one key are an error.
func credentials(h http.Header) (key string, presented bool, err error) {
	foreign := false // an Authorization header of another scheme
	take := func(k string) error {
		if err := checkKey(k); err != nil {
			return err
		}
		if presented && k != key {
			return ErrTwoKeys
		}
		key, presented = k, true
		return nil
	}
	for _, line := range h["Authorization"] {
		scheme, rest, _ := strings.Cut(strings.Trim(line, " \t"), " ")
		if scheme != "" && !strings.EqualFold(scheme, "Bearer") {
			foreign = true
			continue
		}
		if err := take(strings.TrimLeft(rest, " ")); err != nil {
			return "", false, err
		}
	}
	for _, line := range h["X-Api-Key"] {
		if err := take(strings.Trim(line, " \t")); err != nil {
			return "", false, err
		}
	}
	// Beside an X-API-Key another scheme is allowed: it may be a proxy's own.
	if foreign && !presented {
		return "", false, ErrUnknownScheme
	}
	return key, presented, nil
}

func checkKey(key string) error {
	if len(key) > maxKey {
		return ErrKeyTooLong
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return ErrMalformedKey
		}
	}
	if key == "" {
		return ErrMalformedKey
	}
	return nil
}
