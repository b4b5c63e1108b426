package adminapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/rawjson"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/units"
	"github.com/forebay/forebay/internal/web"
)

const (
	maxTuneBody = 4 << 10
	maxLength   = 32 // of a rate or a duration: any that makes sense is shorter
)

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
	t, err := parseTuning(body)
	if err != nil {
		return err
	}
	return s.change(c, name, line, t)
}

// resetBackend answers DELETE /admin/v1/backends/{name}/override.
func (s *Server) resetBackend(c *web.Call) error {
	name, line, err := s.backend(c)
	if err != nil {
		return err
	}
	return s.change(c, name, line, leaky.Tuning{Reset: true})
}

// parseTuning reads the body of a PATCH.
func parseTuning(body []byte) (t leaky.Tuning, err error) {
	fields, err := web.Members(body)
	if err != nil {
		return t, err
	}
	var wrong web.FieldErrors
	settings := 0
	for _, m := range fields {
		settings++
		switch field, most := t.Set.Field(m.Name); to := field.(type) {
		case **leaky.Rate:
			*to = readRate(&wrong, m)
		case **int:
			*to = wrong.Count(m, most)
		case **bool:
			*to = wrong.Flag(m)
		case **units.Switch:
			*to = readSwitch(&wrong, m)
		default:
			settings--
			switch m.Name {
			case "reason":
				t.Reason = readReason(&wrong, m)
			case "expires_in":
				t.For = readLength(&wrong, m)
			default:
				wrong.Unknown(m)
			}
		}
	}
	if paused := t.Set.Paused; t.For != 0 && settings == 1 && paused != nil && !*paused {
		wrong.Add("expires_in", "There is nothing that could end: the pause is taken back.")
	}
	if err := wrong.Err(); err != nil {
		return t, err
	}
	if names := leaky.Tunables(); settings == 0 {
		last := len(names) - 1
		return t, web.InvalidRequest("Nothing is to be changed: name " +
			strings.Join(names[:last], ", ") + " or " + names[last] + ".")
	}
	return t, nil
}

// readReason reads why an operator changes something.
func readReason(f *web.FieldErrors, m web.Member) string {
	reason, ok := rawjson.Text(m.Value)
	if n := utf8.RuneCountInString(reason); !ok || n == 0 || n > leaky.MaxReason ||
		text.Clean(reason) != reason {
		f.Add(m.Name, fmt.Sprintf("Must be a line of 1 to %d visible characters.", leaky.MaxReason))
	}
	return reason
}

// readLength reads how long something lasts.
func readLength(f *web.FieldErrors, m web.Member) time.Duration {
	given, ok := rawjson.Text(m.Value)
	if !ok || len(given) > maxLength {
		f.Add(m.Name, `Must be a duration such as "30m".`)
		return 0
	}
	length, err := units.ParseDuration(given)
	switch {
	case err != nil:
		f.Add(m.Name, web.Sentence(err))
	case length < leaky.MinFor || length > leaky.MaxFor:
		f.Add(m.Name, fmt.Sprintf("Must be from %s to %s: what stays for longer belongs into the "+
			"config.", units.FormatDuration(leaky.MinFor),
			units.FormatDuration(leaky.MaxFor)))
	}
	return length
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
	if len(text) > maxLength {
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

// change changes the overrides if the settings are those that If-Match asks for, logs that, and
// answers with the backend as it is now.
func (s *Server) change(c *web.Call, name string, line Drain, t leaky.Tuning) error {
	before, err := line.Status(c.Ctx)
	if err != nil {
		return web.StoreError(err)
	}
	if condition := c.R.Header["If-Match"]; condition != nil {
		anyTag, found, err := web.IfMatch(condition, settingsTag(before))
		switch {
		case err != nil:
			return err
		case !found:
			return changed(c, name, before)
		case !anyTag:
			t.If = before.Version
		}
	}
	t.By = operatorName(c.R)
	err = line.Retune(c.Ctx, t)
	if errors.Is(err, leaky.ErrChanged) { // between the two calls
		now, err := line.Status(c.Ctx)
		if err != nil {
			return web.StoreError(err)
		}
		return changed(c, name, now)
	}
	what, touched, wanted := "backend tuned", t.Set, t.Set.Apply(before.Settings)
	if t.Reset {
		what, touched, wanted = "backend reset", before.Override, before.Configured
	}
	details := []slog.Attr{slog.String("backend", name)}
	for _, name := range touched.Names() {
		details = append(details, slog.String(name, before.Text(name)+becomes+wanted.Text(name)))
	}
	if t.For != 0 {
		details = append(details, slog.String("expires_in", units.FormatDuration(t.For)))
	}
	if t.Reason != "" {
		details = append(details, slog.String("reason", t.Reason))
	}
	s.audit(c, what, err, details...)
	if err != nil {
		return web.StoreError(err)
	}
	return s.showBackend(c, name, line)
}

// changed returns the problem of a change that is meant for other settings than the present ones.
func changed(c *web.Call, name string, now leaky.Status) error {
	detail := "The settings are not those that If-Match names"
	if now.By != "" {
		detail += fmt.Sprintf(": %s changed them last, at %s", now.By,
			now.At.UTC().Format(time.RFC3339))
	}
	var set []string
	for _, name := range now.Override.Names() {
		set = append(set, name+" "+now.Text(name))
	}
	if len(set) == 0 {
		set = []string{"none"}
	}
	detail += ". Overrides in force: " + strings.Join(set, ", ") + "."
	p := web.Problem(http.StatusPreconditionFailed, api.CodeSettingsChanged, detail)
	view := backendView(name, now)
	p.Backend = &view
	c.W.Header().Set("ETag", settingsTag(now))
	return p
}
