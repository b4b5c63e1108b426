package web

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ParseQuery parses a query that may have the named parameters, each once. An absent one is "" in
// the result. An empty one is an error, since it is more likely a mistake than a request for
// everything.
func ParseQuery(raw string, names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, InvalidRequest("The query can't be read.")
	}
	found := make(map[string]string, len(values))
	for name, given := range values {
		switch {
		case len(names) == 0:
			return nil, InvalidRequest("This call takes no query.")
		case !slices.Contains(names, name):
			return nil, InvalidRequest("There is no parameter " + Brief(name) + "; there are " +
				strings.Join(names, ", ") + ".")
		case len(given) > 1:
			return nil, InvalidRequest("The parameter " + name + " is given twice.")
		case given[0] == "":
			return nil, InvalidRequest("The parameter " + name + " is empty; leave it out.")
		}
		found[name] = given[0]
	}
	return found, nil
}

// defaultPage is how many entries a page of a list has, if its request doesn't say.
const defaultPage = 50

// PageLimit parses the parameter limit of a list: a whole number from 1 to most; "" means 50.
func PageLimit(text string, most int) (int, error) {
	if text == "" {
		return defaultPage, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > most {
		return 0, InvalidRequest("The parameter limit must be a whole number from 1 to " +
			strconv.Itoa(most) + ".")
	}
	return limit, nil
}

// Cursor returns one word for the fields that say where a list continues. Only the last may have
// spaces.
func Cursor(fields ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(fields, " ")))
}

// ParseCursor is the inverse of Cursor, for n fields. The fields must be checked, since a client
// may send any text.
func ParseCursor(text string, n int) (fields []string, err error) {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if fields = strings.SplitN(string(plain), " ", n); err != nil || len(fields) != n {
		return nil, WrongCursor()
	}
	return fields, nil
}

// WrongCursor returns the answer to a cursor that isn't the list's.
func WrongCursor() error {
	return InvalidRequest("The parameter cursor must be next_cursor of the page before, with the " +
		"same parameters.")
}
