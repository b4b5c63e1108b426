package adminapi

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/rawjson"
	"github.com/forebay/forebay/internal/units"
	"github.com/forebay/forebay/internal/web"
)

const maxTuneBody = 4 << 10

// tuneBackend answers PATCH /admin/v1/backends/{name}.
func (s *Server) tuneBackend(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	body, err := web.ReadBody(c.W, c.R, maxTuneBody)
	if err != nil {
		return err
	}
	o, err := parseTuning(body)
	if err != nil {
		return err
	}
	return s.change(c, name, line, &o)
}

// resetBackend answers DELETE /admin/v1/backends/{name}/override.
func (s *Server) resetBackend(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	return s.change(c, name, line, nil)
}

// parseTuning reads the body of a PATCH.
func parseTuning(body []byte) (leaky.Override, error) {
	fields, err := web.Members(body)
	if err != nil {
		return leaky.Override{}, err
	}
	if names := leaky.Tunables(); len(fields) == 0 {
		last := len(names) - 1
		return leaky.Override{}, web.InvalidRequest("Nothing is to be changed: name " +
			strings.Join(names[:last], ", ") + " or " + names[last] + ".")
	}
	var o leaky.Override
	var wrong web.FieldErrors
	for _, m := range fields {
		switch field, most := o.Field(m.Name); to := field.(type) {
		case **leaky.Rate:
			*to = readRate(&wrong, m)
		case **int:
			*to = wrong.Count(m, most)
		case **bool:
			*to = wrong.Flag(m)
		case **units.Switch:
			*to = readSwitch(&wrong, m)
		default:
			wrong.Unknown(m)
		}
	}
	return o, wrong.Err()
}

// readSwitch reads a switch as the config has it.
func readSwitch(f *web.FieldErrors, m web.Member) *units.Switch {
	text, _ := rawjson.Text(m.Value)
	on := text == api.FeedbackOn
	if !on && text != api.FeedbackOff {
		f.Add(m.Name, `Must be "on" or "off".`)
		return nil
	}
	return new(units.Switch(on))
}

// readRate reads a drain rate.
func readRate(f *web.FieldErrors, m web.Member) *leaky.Rate {
	text, ok := rawjson.Text(m.Value)
	if !ok {
		f.Add(m.Name, `Must be a string such as "5/s".`)
		return nil
	}
	if len(text) > 32 {
		f.Add(m.Name, "Is too long.")
		return nil
	}
	rate, err := leaky.ParseRate(text)
	if err != nil {
		f.Add(m.Name, web.Sentence(err))
		return nil
	}
	return &rate
}

// change sets an override, or with nil takes back all that there are, logs that, and answers with
// the backend as it is now.
func (s *Server) change(c *web.Call, name string, line Drain, o *leaky.Override) error {
	before, err := line.Status(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	var what string
	touched, wanted := before.Override, before.Configured
	if o == nil {
		what, err = "backend reset", line.ResetTuning(c.Ctx, operatorName(c.R))
	} else {
		what, err = "backend tuned", line.Tune(c.Ctx, *o, operatorName(c.R))
		touched, wanted = *o, o.Apply(before.Settings)
	}
	details := []slog.Attr{slog.String("backend", name)}
	for _, name := range touched.Names() {
		details = append(details, slog.String(name, before.Text(name)+becomes+wanted.Text(name)))
	}
	s.audit(c, what, err, details...)
	if err != nil {
		return web.StoreError(err)
	}
	after, err := line.Status(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	return c.JSON(http.StatusOK, backendView(name, after))
}
