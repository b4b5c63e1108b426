package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/client"
	"github.com/forebay/forebay/internal/text"
)

func (a *app) operatorCommands() []*cobra.Command {
	return []*cobra.Command{a.top(), a.health(), a.backends(), a.backend(), a.rate(),
		a.turning("concurrency", "N", "Turn a backend's calls at one time", true),
		a.turning("burst", "N", "Turn how many jobs start at once after a rest", false),
		a.turning("capacity", "N", "Turn how many jobs a line holds", false),
		a.turning("feedback", "on|off", "Turn whether trouble lowers a backend's rate", false),
		a.pause(true), a.pause(false), a.reset(), a.redrive(),
		a.anyJobs(), a.webhooks(), a.cache(), a.books(), a.events(), a.replay(), a.shadow()}
}

const backendsPath = "/admin/v1/backends"

func backendPath(name string) string { return backendsPath + "/" + url.PathEscape(name) }

// backendNames are the backends of the server; without an answer, none.
func (a *app) backendNames(ctx context.Context) (names []string) {
	var all api.Backends
	_, _ = a.get(ctx, reading(backendsPath, nil), &all)
	for _, b := range all.Backends {
		names = append(names, b.Name)
	}
	return names
}

// onBackend is a command whose first argument is a backend.
func (a *app) onBackend(use, short string, arguments int,
	do func(cmd *cobra.Command, args []string) error) *cobra.Command {
	c := command(use, short, arguments, arguments, do)
	c.ValidArgsFunction = a.completed(a.backendNames)
	return c
}

func (a *app) health() *cobra.Command {
	c := command("health", "Say what is wrong, and what to type next", 0, 0,
		func(cmd *cobra.Command, _ []string) error {
			d, err := present(cmd.Context(), a, reading("/admin/v1/health", nil),
				text.Health, func(d api.Diagnosis) table {
					t := columns("LEVEL|THING|BACKEND|CAUSE|SINCE|NEXT")
					for _, f := range d.Findings {
						t.add(f.Thing, f.Level, f.Thing, f.Backend, f.Cause, a.moment(f.Since),
							f.Next)
					}
					return t
				})
			exit, known := map[string]code{api.LevelOK: 0, api.LevelWarning: 1,
				api.LevelCritical: 2}[d.Level]
			switch {
			case err != nil:
				a.exit(err)
				return code(3)
			case !known:
				return code(3)
			}
			return exit
		})
	c.Long = c.Short + `. The exit code is that of the worst finding, as Nagios has them:
0 ok, 1 warning, 2 critical, 3 unknown, which is also that of a server that doesn't answer.`
	return c
}

// showing is a command that makes a GET and shows its answer as a table.
func showing[T any](a *app, use, short, path string, query filters, head string,
	fill func(t *table, answer T)) *cobra.Command {
	return command(use, short, 0, 0, func(cmd *cobra.Command, _ []string) error {
		var v T
		raw, err := a.get(cmd.Context(), reading(path, query.query()), &v)
		if err != nil {
			return err
		}
		t := columns(head)
		fill(&t, v)
		return a.show(raw, t)
	})
}

func (a *app) backends() *cobra.Command {
	return showing(a, "backends", "List the backends: rate, line, what each waits on", backendsPath,
		nil, "BACKEND|STATE|RATE|CONCURRENCY|LINE|OLDEST|IN FLIGHT|CALLS/S|P95|FAILED",
		func(t *table, all api.Backends) {
			for _, b := range all.Backends {
				t.add(b.Name, b.Name, text.State(b), text.InForce(b.Rate),
					strconv.Itoa(b.Concurrency.Effective), text.Line(b),
					text.Span(b.OldestWaitSeconds), number(b.InFlight),
					fmt.Sprintf("%.2f", b.RecentCalls.PerSecond),
					text.Span(b.RecentCalls.P95Seconds), number(b.Outcomes.Failed))
			}
		})
}

func (a *app) backend() *cobra.Command {
	return a.onBackend("backend NAME", "Show one backend", 1,
		func(cmd *cobra.Command, args []string) error {
			return a.showBackend(cmd.Context(), args[0])
		})
}

func (a *app) showBackend(ctx context.Context, name string) error {
	_, err := present(ctx, a, reading(backendPath(name), nil),
		func(b api.Backend) string { return text.Backend(b, time.Now()) }, nil)
	return err
}

// tuning is a change to a backend, with the flags that changes have.
type tuning struct {
	a       *app
	lasts   duration
	reason  string
	preview bool
}

func (t *tuning) flags(c *cobra.Command, canEnd, canPreview bool) *cobra.Command {
	c.Flags().StringVar(&t.reason, "reason", "", "`why`, for the record")
	if canEnd {
		c.Flags().Var(&t.lasts, "for", "go back by itself after this time")
	}
	if canPreview {
		c.Flags().BoolVar(&t.preview, "dry-run", false, "say what would happen, and change nothing")
	}
	return c
}

// set changes a setting of a backend, or says what that would bring.
func (t *tuning) set(ctx context.Context, name, setting string, value any) error {
	if t.preview {
		return t.a.forecast(ctx, name, url.Values{setting: {fmt.Sprint(value)}})
	}
	body := map[string]any{setting: value}
	if t.reason != "" {
		body["reason"] = t.reason
	}
	if t.lasts != 0 {
		body["expires_in"] = t.lasts.String()
	}
	return t.a.tuned(ctx, name, setting, call{method: "PATCH", path: backendPath(name),
		body: body})
}

// forecast says what a backend's line is going to do, with the settings that are proposed.
func (a *app) forecast(ctx context.Context, name string, proposed url.Values) error {
	_, err := present(ctx, a, reading(backendPath(name)+"/forecast", proposed), text.Forecast, nil)
	return err
}

// explainBackend writes a backend's state and its forecast, for programs as one document.
func (a *app) explainBackend(ctx context.Context, name string) error {
	if a.form() == "table" {
		if err := a.showBackend(ctx, name); err != nil {
			return err
		}
		return a.forecast(ctx, name, nil)
	}
	var all struct {
		Backend  json.RawMessage `json:"backend"`
		Forecast json.RawMessage `json:"forecast"`
	}
	path := backendPath(name)
	if _, err := a.get(ctx, reading(path, nil), &all.Backend); err != nil {
		return err
	}
	if _, err := a.get(ctx, reading(path+"/forecast", nil), &all.Forecast); err != nil {
		return err
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return a.showFlat(raw, nil)
}

// tuned makes a call that changes a backend, unless somebody else changes it at the same moment,
// and writes the settings that it changed, and the one that it is about; "": all.
func (a *app) tuned(ctx context.Context, name, setting string, c call) error {
	before, err := a.do(ctx, reading(backendPath(name), nil))
	if err != nil {
		return err
	}
	var was, is api.Backend
	c.match = before.tag
	raw, err := a.get(ctx, c, &is)
	if err = cmp.Or(err, before.decode(c, &was)); err != nil {
		return err
	}
	t := columns("BACKEND|SETTING|WAS|IS")
	for _, s := range []struct{ name, was, is string }{
		{"rate", text.Setting(was.Rate), text.Setting(is.Rate)},
		{"burst", text.Setting(was.Burst), text.Setting(is.Burst)},
		{"concurrency", text.Setting(was.Concurrency), text.Setting(is.Concurrency)},
		{"capacity", text.Setting(was.Capacity), text.Setting(is.Capacity)},
		{"feedback", text.Setting(was.Feedback), text.Setting(is.Feedback)},
		{"paused", strconv.FormatBool(was.Paused), strconv.FormatBool(is.Paused)},
	} {
		if s.name == setting || s.was != s.is {
			t.add(is.Name, is.Name, s.name, s.was, s.is)
		}
	}
	return a.show(raw, t)
}

func (a *app) rate() *cobra.Command {
	c := a.turning("rate", "RATE", "Turn a backend's drain rate", true)
	c.Example = `  forebay rate reports 12/s --dry-run
  forebay rate reports 12/s --for 30m --reason "end of the month"`
	return c
}

// turning is a command that sets the setting it is named after to a value; N stands for a number.
func (a *app) turning(name, value, short string, canPreview bool) *cobra.Command {
	t := &tuning{a: a}
	return t.flags(a.onBackend(name+" NAME "+value+" [flags]", short, 2,
		func(cmd *cobra.Command, args []string) error {
			if value != "N" {
				return t.set(cmd.Context(), args[0], name, args[1])
			}
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return usage(cmd, "%q isn't a whole number", args[1])
			}
			return t.set(cmd.Context(), args[0], name, n)
		}), true, canPreview)
}

func (a *app) pause(stop bool) *cobra.Command {
	t := &tuning{a: a}
	use, short := "resume NAME [flags]", "Start jobs of a backend again"
	if stop {
		use, short = "pause NAME [flags]", "Start no job of a backend until resume"
	}
	return t.flags(a.onBackend(use, short, 1, func(cmd *cobra.Command, args []string) error {
		return t.set(cmd.Context(), args[0], "paused", stop)
	}), stop, true)
}

func (a *app) reset() *cobra.Command {
	return a.onBackend("reset NAME", "Take back all that was set live on a backend", 1,
		func(cmd *cobra.Command, args []string) error {
			return a.tuned(cmd.Context(), args[0], "", call{method: "DELETE",
				path: backendPath(args[0]) + "/override"})
		})
}

// askAbove is how many jobs a redrive may move without a question.
const askAbove = 10

func (a *app) redrive() *cobra.Command {
	filter := filters{}
	most, token, dry, yes := 0, "", false, false
	c := a.onBackend("redrive NAME [flags]", "Put a backend's failed jobs back into the line", 1,
		func(cmd *cobra.Command, args []string) error {
			ctx, name := cmd.Context(), args[0]
			body := filter.set()
			if most != 0 {
				body["max"] = most
			}
			switch {
			case dry && token != "":
				return usage(cmd, "--token is of a --dry-run that was")
			case dry:
				_, err := present(ctx, a, redriving(name, body, true), text.RedrivePreview, nil)
				return err
			case token != "":
				body["limit_to"] = token
			case !yes:
				p, err := a.previewed(ctx, name, body)
				if err != nil {
					return err
				}
				if p.Jobs > askAbove { // those that the answer is about, and no others
					body = map[string]any{"limit_to": p.Token}
					if err := a.confirm(ctx, "redrive "+text.RedrivePreview(p)); err != nil {
						return err
					}
				}
			}
			_, err := present(ctx, a, redriving(name, body, false), text.Redriven, nil)
			return err
		})
	c.Long = c.Short + `. Up to ` + strconv.Itoa(askAbove) + ` jobs are put back at once. For more
there is a question, unless --yes or the --token of a --dry-run is given.`
	f := c.Flags()
	filter.flags(c, "code", "operation", "client")
	f.IntVar(&most, "max", 0, "`jobs` at most; default 1000")
	f.BoolVar(&dry, "dry-run", false, "say which they are, and put none back")
	f.StringVar(&token, "token", "", "exactly the jobs of the preview with this `token`")
	f.BoolVarP(&yes, "yes", "y", false, "ask nothing")
	return c
}

// redriving is the call that redrives what body selects, or says what it would do.
func redriving(name string, body map[string]any, dry bool) call {
	if dry {
		all := map[string]any{"dry_run": true}
		maps.Copy(all, body)
		body = all
	}
	return call{method: "POST", path: backendPath(name) + "/redrive", body: body}
}

// previewed asks what a redrive would do.
func (a *app) previewed(ctx context.Context, name string, body map[string]any) (
	p api.RedrivePreview, err error) {
	_, err = a.get(ctx, redriving(name, body, true), &p)
	return p, err
}

// filters are flags that become the query of a list.
type filters map[string]*string

func (f filters) flags(c *cobra.Command, names ...string) {
	for _, name := range names {
		f[name] = c.Flags().String(name, "", "only those of this `"+name+"`")
	}
}

func (f filters) query() url.Values {
	q := url.Values{}
	for name, value := range f {
		q.Set(name, *value)
	}
	return q
}

// set are the filters that were given, as a body.
func (f filters) set() map[string]any {
	body := map[string]any{}
	for name, value := range f {
		if *value != "" {
			body[name] = *value
		}
	}
	return body
}

// pages reads a list page by page until there are most items (0: all), and returns them as they
// came, and decoded. member is the name of the list in a page.
func pages[T any](ctx context.Context, a *app, path string, q url.Values, member string, most int) (
	raw []json.RawMessage, items []T, err error) {
	raw = []json.RawMessage{} // so that an empty list is one
	for {
		var page map[string]json.RawMessage
		if _, err := a.get(ctx, reading(path, q), &page); err != nil {
			return nil, nil, err
		}
		var part []json.RawMessage
		var values []T
		var next string
		c, list := reading(path, nil), answer{body: page[member]}
		if err := errors.Join(list.decode(c, &part), list.decode(c, &values)); err != nil {
			return nil, nil, err
		}
		raw, items = append(raw, part...), append(items, values...)
		_ = json.Unmarshal(page["next_cursor"], &next) // null, or absent: there is no more
		if most > 0 && len(items) >= most {
			return raw[:most], items[:most], nil
		}
		if next == "" || next == q.Get("cursor") {
			return raw, items, nil
		}
		q.Set("cursor", next)
	}
}

// listed is a command that lists what a path has, page by page.
func listed[T any](a *app, use, short, path, member, head string, fields []string,
	row func(T) (name string, cells []string)) *cobra.Command {
	f, most := filters{}, 0
	c := command(use, short, 0, 0, func(cmd *cobra.Command, _ []string) error {
		if most < 0 {
			return usage(cmd, "--max is 0 or more")
		}
		raw, items, err := pages[T](cmd.Context(), a, path, f.query(), member, most)
		if err != nil {
			return err
		}
		t := columns(head)
		for _, item := range items {
			name, cells := row(item)
			t.add(name, cells...)
		}
		return a.show(raw, t)
	})
	f.flags(c, fields...)
	c.Flags().IntVar(&most, "max", 50, "`items` at most; 0: all")
	return c
}

func (a *app) anyJobs() *cobra.Command {
	ls := listed(a, "ls [flags]", "List jobs that wait, run or have failed",
		"/admin/v1/jobs", "jobs", "JOB|OPERATION|CLIENT|STATE|CREATED|ATTEMPTS|FAILURE",
		[]string{"backend", "status", "client", "operation", "code"},
		func(j api.AdminJob) (string, []string) {
			failure := ""
			if j.Failure != nil {
				failure = j.Failure.Code
			}
			return j.ID, []string{j.ID, j.Operation, j.Client, j.State, a.moment(&j.CreatedAt),
				strconv.Itoa(j.Attempts), failure}
		})
	return group("jobs", "All clients' jobs", ls,
		a.onJob("get JOB", "Show any client's job", "GET", ""),
		a.onJob("cancel JOB", "Cancel any client's job", "DELETE", ""),
		a.onJob("redrive JOB", "Put a failed job back into the line", "POST", "/redrive"))
}

// onJob is a command that makes one call for one job, and shows what comes.
func (a *app) onJob(use, short, method, end string) *cobra.Command {
	return command(use, short, 1, 1, func(cmd *cobra.Command, args []string) error {
		return a.make(cmd.Context(), call{method: method,
			path: "/admin/v1/jobs/" + url.PathEscape(args[0]) + end})
	})
}

func (a *app) webhooks() *cobra.Command {
	ls := listed(a, "ls [flags]", "List deliveries that were given up, or by --state",
		"/admin/v1/deliveries", "deliveries", "JOB|STATE|CLIENT|ATTEMPTS|NEXT|LAST ANSWER|URL",
		[]string{"backend", "state"},
		func(d api.Delivery) (string, []string) {
			last := ""
			if n := len(d.Log); n > 0 {
				if last = d.Log[n-1].Error; last == "" {
					last = strconv.Itoa(d.Log[n-1].Status)
				}
			}
			return d.JobID, []string{d.JobID, d.State, d.Client, strconv.Itoa(d.Attempts),
				a.moment(d.NextAttemptAt), last, d.URL}
		})
	return group("webhooks", "Calls to clients at the ends of their jobs", ls,
		a.onJob("get JOB", "Show the delivery of one job", "GET", "/deliveries"),
		a.onJob("send JOB", "Send the delivery of one job again", "POST", "/redeliver"))
}

func (a *app) cache() *cobra.Command {
	ls := showing(a, "ls", "Count the stored answers of each operation", "/admin/v1/cache", nil,
		"OPERATION|ANSWERS|BYTES|HITS|STALE|MISSES",
		func(t *table, all api.Cache) {
			for _, o := range all.Operations {
				t.add(o.Operation, o.Operation, strconv.Itoa(o.Answers), number(o.Bytes),
					number(o.Hits), number(o.Stale), number(o.Misses))
			}
		})
	find, gone, yes := filters{}, filters{}, false
	entry := command("entry [flags]", "Show one stored answer's age and size", 0, 0,
		func(cmd *cobra.Command, _ []string) error {
			return a.make(cmd.Context(), reading("/admin/v1/cache/entry", find.query()))
		})
	find.flags(entry, "operation", "client", "tier", "payload", "key")
	purge := command("purge [flags]", "Remove stored answers", 0, 0,
		func(cmd *cobra.Command, _ []string) error {
			body := gone.set()
			if len(body) == 0 {
				return usage(cmd, "say which: --operation, --client or --key")
			}
			if !yes {
				if err := a.confirm(cmd.Context(), "remove these stored answers"); err != nil {
					return err
				}
			}
			return a.make(cmd.Context(), call{method: "POST", path: "/admin/v1/cache/purge",
				body: body})
		})
	gone.flags(purge, "operation", "client", "key")
	purge.Flags().BoolVarP(&yes, "yes", "y", false, "ask nothing")
	return group("cache", "Stored answers", ls, entry, purge)
}

func (a *app) books() *cobra.Command {
	c := command("books [NAME]", "Account for every accepted job, of one backend or all", 0, 1,
		func(cmd *cobra.Command, args []string) error {
			var all api.Backends
			if len(args) == 1 {
				all.Backends = []api.Backend{{Name: args[0]}}
			} else if _, err := a.get(cmd.Context(), reading(backendsPath, nil), &all); err != nil {
				return err
			}
			t := columns("BACKEND|BOOKS|ACCEPTED|WAITING|DELAYED|IN FLIGHT|SUCCEEDED|FAILED|" +
				"CANCELED|EXPIRED|LOST")
			whole, balanced := []json.RawMessage{}, true
			for _, backend := range all.Backends {
				var b api.Books
				raw, err := a.get(cmd.Context(), reading(backendPath(backend.Name)+"/books", nil),
					&b)
				if err != nil {
					return err
				}
				word := "balanced"
				if !b.Balanced {
					word, balanced = fmt.Sprintf("off by %d", b.Difference), false
				}
				whole = append(whole, raw)
				o := b.Outcomes
				t.add(b.Backend, b.Backend, word, number(o.Accepted), number(b.Waiting),
					number(b.Delayed), number(b.InFlight), number(o.Succeeded), number(o.Failed),
					number(o.Canceled), number(o.Expired), number(o.Lost))
			}
			if err := a.show(whole, t); err != nil {
				return err
			}
			if !balanced {
				return failed("the books of a backend don't balance: see docs/operating.md")
			}
			return nil
		})
	c.ValidArgsFunction = a.completed(a.backendNames)
	return c
}

// past is a moment that a flag names: a time of day, of today or yesterday, a date with a time, or
// how long ago. Like all times that the command writes, they are in UTC.
func past(s string, now time.Time) (time.Time, error) {
	now = now.UTC()
	var ago duration
	if ago.Set(s) == nil {
		return now.Add(-time.Duration(ago)), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			y, m, d := now.Date()
			t = time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if t.After(now) {
				t = t.AddDate(0, 0, -1)
			}
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q isn't a time: write 15:59, 2026-11-30 15:59, or 20m for so "+
		"long ago", s)
}

// stamp writes a moment as the admin API reads it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func (a *app) events() *cobra.Command {
	from, backend, most, follow := "", "", 0, false
	c := command("events [flags]", "Show what operators, backends and processes did", 0, 0,
		func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"backend": {backend}}
			if from != "" {
				t, err := past(from, time.Now())
				if err != nil {
					return usage(cmd, "%v", err)
				}
				q.Set("from", stamp(t))
			}
			if follow {
				return a.follow(cmd.Context(), q)
			}
			if from != "" || most > 0 {
				q.Set("limit", strconv.Itoa(min(cmp.Or(most, maxEvents), maxEvents)))
			}
			raw, all, err := pages[api.OperationEvent](cmd.Context(), a, eventsPath, q, "events",
				most)
			if err != nil {
				return err
			}
			return a.showEvents(raw, all...)
		})
	c.Long = c.Short + `: the newest, or all since --from. Values of a line: time, type,
backend, by whom, what changed, text, reason.`
	c.Flags().StringVar(&from, "from", "",
		"`moment` of the first: 15:59 (UTC), or 2h for so long ago")
	c.Flags().StringVar(&backend, "backend", "", "only this `backend`")
	c.Flags().IntVar(&most, "max", 0, "`events` at most; 0: 100 or, with --from, all")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C, as they happen")
	return c
}

const (
	eventsPath = "/admin/v1/events"
	maxEvents  = 1000 // of a page
)

// showEvents writes events, a line for each: raw, or as text or values.
func (a *app) showEvents(raw any, all ...api.OperationEvent) error {
	if a.form() == "table" {
		return a.showText(text.Events(api.OperationEvents{Events: all}))
	}
	t := table{}
	for _, e := range all {
		var changes []string
		for _, name := range slices.Sorted(maps.Keys(e.After)) {
			changes = append(changes, name+" "+e.Before[name]+" → "+e.After[name])
		}
		t.add(e.ID, a.moment(&e.Time), e.Type, e.Backend, e.By, strings.Join(changes, ", "),
			e.Text, e.Reason)
	}
	return a.show(raw, t)
}

// reconnectAfter is the pause before a broken stream of events is taken up again.
const reconnectAfter = time.Second

// follow writes events as they come, until ctx ends. A stream that breaks is taken up where it
// broke; one that can't be begun is an error.
func (a *app) follow(ctx context.Context, q url.Values) error {
	last := ""
	for begun := false; ; begun = true {
		err := a.stream(ctx, q, &last)
		e, called := errors.AsType[*client.Error](err)
		again := err == nil || begun && called && (e.Status == 0 || e.Status >= 500)
		if !again && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectAfter):
		}
	}
}

// stream writes the events of one connection. last is the id of the last event.
func (a *app) stream(ctx context.Context, q url.Values, last *string) error {
	c := reading(eventsPath, q)
	c.lastEvent = *last
	res, err := a.send(ctx, c, "text/event-stream")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if !isA(res, "text/event-stream") {
		return &client.Error{Call: c.String(), Status: http.StatusOK}
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20) // bytes of one line, more than any event has
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			*last = value
		case "data":
			if err := a.showEvent(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// showEvent writes one event of a stream, on one line.
func (a *app) showEvent(data string) error {
	if form := a.form(); form == "json" || form == "yaml" { // which JSON is, too
		_, err := fmt.Fprintln(a.stdout, data)
		return err
	}
	var e api.OperationEvent
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return failed("the server sends an event that isn't one: %v", err)
	}
	return a.showEvents(nil, e)
}

const historyPath = "/admin/v1/history"

func (a *app) replay() *cobra.Command {
	from, backend := "", ""
	var lasts, step duration
	c := command("replay [flags]", "Show minutes of the past again: what came, drained and changed",
		0, 0, func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			begin, err := past(from, now)
			if err != nil {
				return usage(cmd, "%v", err)
			}
			q := url.Values{"backend": {backend}, "from": {stamp(begin)}, "step": {step.String()}}
			if end := begin.Add(time.Duration(lasts)); lasts != 0 && end.Before(now) {
				q.Set("to", stamp(end))
			}
			_, err = present(cmd.Context(), a, reading(historyPath, q),
				text.History, a.historyValues)
			return err
		})
	c.Long = c.Short + `. Elsewhere than on a terminal, the values of a line are: time,
seconds, backend, offered, accepted, fresh, degraded, rejected; started, waiting, capacity, seconds
that the oldest has waited, rate that is set, rate in force.`
	c.Flags().StringVar(&from, "from", "15m",
		"`moment` at which it begins: 15:59 (UTC), or 2h for so long ago")
	c.Flags().Var(&lasts, "for", "how much of it; default: until now")
	c.Flags().Var(&step, "step", "time from line to line, such as 5s or 1m")
	c.Flags().StringVar(&backend, "backend", "", "only this `backend`")
	return c
}

// historyValues is a history as a table for programs. What no process has seen is empty.
func (a *app) historyValues(h api.History) (t table) {
	for _, b := range h.Backends {
		for _, p := range b.Points {
			cells := []string{a.moment(&p.At), strconv.Itoa(p.Seconds), b.Backend,
				number(p.Offered), number(p.Accepted), number(p.Fresh), number(p.Degraded),
				number(p.Rejected), "", "", "", "", "", ""}
			if l := p.Line; l != nil {
				cells = append(cells[:8], number(l.Started), number(l.Waiting), number(l.Capacity),
					fmt.Sprint(l.OldestWaitSeconds), text.Target(l.Rate), l.Rate.Effective)
			}
			t.add(b.Backend, cells...)
		}
	}
	return t
}

func (a *app) shadow() *cobra.Command {
	f := filters{}
	c := showing(a, "shadow [flags]", "List the clients that limits on trial would have refused",
		"/admin/v1/shadow-limits", f, "LIMIT|CLIENT|OPERATION|REFUSALS|LAST",
		func(t *table, all api.ShadowLimits) {
			for _, r := range all.Refusals {
				t.add(r.Client, r.Limit, r.Client, r.Operation, number(r.Count),
					a.moment(&r.LastAt))
			}
		})
	f.flags(c, "limit")
	return c
}
