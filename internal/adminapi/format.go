package adminapi

import (
	"net/http"

	"github.com/forebay/forebay/internal/web"
)

// formatParameter is the parameter of calls whose answers a terminal can show as they are.
const formatParameter = "format"

// parseQuery reads the query of such a call: the format, and the parameters with these names.
func parseQuery(c *web.Call, names ...string) (map[string]string, error) {
	asked, err := web.ParseQuery(c.R.URL.RawQuery, append(names, formatParameter)...)
	if format := asked[formatParameter]; err == nil && format != "" && format != "json" &&
		format != "text" {
		err = web.InvalidRequest("The parameter format must be json or text.")
	}
	return asked, err
}

// show answers with v in the format that is asked for: as JSON, or as the text that write makes.
func show[T any](c *web.Call, asked map[string]string, v T, write func(T) string) error {
	if asked[formatParameter] != "text" {
		return c.JSON(http.StatusOK, v)
	}
	c.Bytes(http.StatusOK, "text/plain; charset=utf-8", []byte(write(v)))
	return nil
}
