package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/forebay/forebay/internal/admission"
	"github.com/forebay/forebay/internal/degrade"
	"github.com/forebay/forebay/internal/identity"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/web"
)

var (
	//go:embed docs.html
	docsPage string
	//go:embed docs.css
	docsStyle string

	docsTemplate = template.Must(template.New("docs").Parse(docsPage))

	// docsPolicy lets a browser use only the page and its one style sheet: no script, no form, no
	// other site, no frame around it.
	docsPolicy = func() []string {
		sum := sha256.Sum256([]byte(docsStyle))
		return []string{"default-src 'none'; style-src 'sha256-" +
			base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
	}()
)

// docsView is what the page shows.
type docsView struct {
	Style      template.CSS
	Known      bool   // the page shows one caller's limits
	Client     string // that caller's name; "": callers without a key
	Tier       string
	GraceUntil string      // "": the client isn't new
	Limits     []docsLimit // those that hold for each operation
	Operations []docsOperation
}

type docsOperation struct {
	Name, Cost string
	Fresh      string // up to which age a stored answer is as good as a new one; "": none is
	OnOverload string // "": it is refused
	Always     bool   // OnOverload ends with a step that always gives an answer
	Limits     []docsLimit
}

type docsLimit struct {
	Name, Allows, Per, Algorithm string
	Trial, Grace                 bool
}

// docs answers GET /docs: the limits for people, of the caller's key, or of callers without a key.
func (s *Server) docs(c *call) error {
	client, err := s.Identity.Identify(c.R)
	if err != nil && !errors.Is(err, identity.ErrNoKey) {
		return c.unidentified(client, err)
	}
	view := docsView{Style: template.CSS(docsStyle)}
	if err == nil {
		c.identify(client)
		view = c.docsView(view)
	}
	var page bytes.Buffer
	if err := docsTemplate.Execute(&page, view); err != nil {
		return fmt.Errorf("docs page: %w", err)
	}
	if err := c.reserve(nil, page.Len()); err != nil {
		return err
	}
	h := c.W.Header()
	h["Cache-Control"] = web.NoStore
	h["Content-Security-Policy"] = docsPolicy
	h["Referrer-Policy"] = []string{"no-referrer"}
	h["X-Content-Type-Options"] = noSniff
	c.Bytes(http.StatusOK, "text/html; charset=utf-8", page.Bytes())
	return nil
}

// docsView adds what holds for the caller.
func (c *call) docsView(view docsView) docsView {
	view.Known, view.Client, view.Tier = true, c.caller.Name, c.caller.Tier
	if !c.caller.NewUntil.IsZero() {
		view.GraceUntil = c.caller.NewUntil.UTC().Format("2 January 2006, 15:04 UTC")
	}
	for _, name := range c.s.Admission.Open(c.caller.Tier) {
		o := c.s.Admission.Operation(name)
		operation := docsOperation{Name: name, Cost: costWords(o.Cost)}
		if o.Overload.FreshFor > 0 {
			operation.Fresh = windowText(o.Overload.FreshFor)
		}
		operation.OnOverload, operation.Always = c.overloadWords(o)
		p := c.s.Admission.Plan(c.caller, name)
		for i, r := range p.Rules {
			l := r.Limit()
			operation.Limits = append(operation.Limits, docsLimit{Name: l.Name,
				Allows: docsAllowance(l), Per: perWords[l.Per], Algorithm: string(l.Algorithm),
				Trial: l.Shadow, Grace: p.Grace(i) != 1})
		}
		view.Operations = append(view.Operations, operation)
	}
	view.share()
	return view
}

// share moves the limits that all operations have in common to v.Limits, to be shown once.
func (v *docsView) share() {
	if len(v.Operations) == 0 {
		return
	}
	for _, l := range v.Operations[0].Limits {
		lacks := func(o docsOperation) bool { return !slices.Contains(o.Limits, l) }
		if !slices.ContainsFunc(v.Operations, lacks) {
			v.Limits = append(v.Limits, l)
		}
	}
	common := func(l docsLimit) bool { return slices.Contains(v.Limits, l) }
	for i := range v.Operations {
		v.Operations[i].Limits = slices.DeleteFunc(v.Operations[i].Limits, common)
	}
}

// overloadWords describes the steps that are tried for a refused request. always reports whether
// they always give an answer.
func (c *call) overloadWords(o *admission.Operation) (words string, always bool) {
	var tried []string
steps:
	for _, step := range c.s.stepsFor(c, o) {
		switch step.Kind {
		case degrade.Stale:
			if o.Overload.StaleFor > 0 {
				tried = append(tried, "the last good answer, if it is at most "+
					windowText(o.Overload.StaleFor)+" old")
			}
		case degrade.Operation:
			tried = append(tried, "a job of "+step.Operation+", if that can be accepted")
			continue
		case degrade.Body:
			tried, always = append(tried, "a fixed answer"), true
			break steps
		case degrade.Reject:
			break steps
		}
	}
	return strings.Join(tried, "; otherwise "), always
}

// perWords describe which requests a limit counts together.
var perWords = map[limits.Per]string{
	limits.PerClient:          "yours",
	limits.PerIP:              "all from your address",
	limits.PerOperation:       "everybody's, for each operation separately",
	limits.PerClientOperation: "yours, for each operation separately",
	limits.PerTier:            "all of your tier",
	limits.PerCountry:         "all from your country",
	limits.PerGlobal:          "everybody's",
}

func docsAllowance(l limits.Limit) string {
	if l.Burst > 0 {
		return fmt.Sprintf("%s, %d at once", allowance(l), l.Burst)
	}
	return allowance(l)
}

func costWords(c admission.Cost) string {
	if c.From == "" {
		return "A request counts as " + number(c.Fixed, "request")
	}
	return fmt.Sprintf("A request counts as many times as its payload's %s says: "+
		"1 to %d, or %d without it", strings.TrimPrefix(c.From, "/"), c.Max, c.Default)
}
