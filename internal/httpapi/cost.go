package httpapi

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/rawjson"
	"github.com/forebay/forebay/internal/web"
)

// wrongCost returns the answer to a payload that doesn't have its cost in the right place.
func wrongCost(e *admission.CostError) error {
	field := api.FieldError{Pointer: costPointer(e.Cost.From)}
	if e.Ambiguous != nil {
		field.Detail = unclear(e.Ambiguous)
	} else {
		field.Detail = fmt.Sprintf("Must be a whole number from 1 to %d, in digits alone: "+
			"it is what this request costs.", e.Cost.Max)
	}
	return web.FieldErrors{field}.Err()
}

// costPointer turns a pointer into the payload into one into the body, as a URI fragment.
func costPointer(from string) string {
	steps := strings.Split(from, "/")
	for i := range steps {
		steps[i] = url.PathEscape(steps[i])
	}
	return "#/payload" + strings.Join(steps, "/")
}

// unclear describes for a client what is wrong with the path to a value.
func unclear(a *rawjson.Ambiguous) string {
	if a.Given == a.Name {
		return fmt.Sprintf("The name %s is given twice.", web.Brief(a.Name))
	}
	return fmt.Sprintf("The name must be written %s, not %s.",
		web.Brief(a.Name), web.Brief(a.Given))
}
