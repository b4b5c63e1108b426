package httpapi

import (
	"net/url"
	"slices"
	"strings"
)

// parseQuery reads a query that may have these parameters, each once. One that is absent is "" in what it returns; one that is there
// and empty is an error, since it is more likely a slip than a wish for everything.
func parseQuery(raw string, names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalidRequest("The query can't be read.")
	}
	found := make(map[string]string, len(values))
	for name, given := range values {
		switch {
		case len(names) == 0:
			return nil, invalidRequest("This call takes no query.")
		case !slices.Contains(names, name):
			return nil, invalidRequest("There is no parameter " + brief(name) + "; there are " + strings.Join(names, ", ") + ".")
		case len(given) > 1:
			return nil, invalidRequest("The parameter " + name + " is given twice.")
		case given[0] == "":
			return nil, invalidRequest("The parameter " + name + " is empty; leave it out.")
		}
		found[name] = given[0]
	}
	return found, nil
}

// noQuery has h called without a query alone.
func noQuery(h handler) handler {
	return func(c *call) error {
		if _, err := parseQuery(c.r.URL.RawQuery); err != nil {
			return err
		}
		return h(c)
	}
}
