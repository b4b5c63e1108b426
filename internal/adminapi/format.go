package adminapi

import (
	"net/http"

	"github.com/forebay/forebay/internal/web"
)

// formatParameter is the parameter of calls whose answers a terminal can show as they are.
const formatParameter = "format"

// checkFormat refuses a format that there isn't, before anything is read for the answer.
func checkFormat(format string) error {
	if format == "" || format == "json" || format == "text" {
		return nil
	}
	return web.InvalidRequest("The parameter format must be json or text.")
}

// show answers with v in the format that was asked for: as JSON, or as the text that write makes.
func show[T any](c *web.Call, format string, v T, write func(T) string) error {
	if format != "text" {
		return c.JSON(http.StatusOK, v)
	}
	c.Bytes(http.StatusOK, "text/plain; charset=utf-8", []byte(write(v)))
	return nil
}
