package web

import (
	"net/url"
	"slices"
	"strings"
)

// ParseQuery reads a query that may have the named parameters, each once. One that is absent is ""
// in the result. One that is there and empty is an error, since it is more likely a slip than a
// wish for everything.
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
