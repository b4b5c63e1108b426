package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/client"
	"github.com/forebay/forebay/internal/text"
	"github.com/forebay/forebay/internal/units"
)

// errTimeout ends a context whose --timeout has passed.
var errTimeout = errors.New("the timeout has passed")

func (a *app) clientCommands() []*cobra.Command {
	return []*cobra.Command{a.submit(), a.jobCommands(), a.explain(), a.limits(), a.ops()}
}

// duration is a flag's value: as in the config, 7d included. 0: it wasn't given.
type duration time.Duration

func (d *duration) Set(s string) error {
	read, err := units.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q %w", s, err)
	}
	*d = duration(read)
	return nil
}

func (d *duration) Type() string { return "duration" }

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return units.ShortDuration(time.Duration(*d))
}

// bound is ctx with the end that --timeout sets, if it does.
func (d *duration) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if *d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, time.Duration(*d), errTimeout)
}

func (a *app) submit() *cobra.Command {
	var r client.Request
	var data string
	var wait bool
	var within, timeout duration
	c := a.asClient("submit OPERATION [flags]", "Submit a job", 1,
		func(ctx context.Context, c *client.Client, args []string) (err error) {
			r.Operation, r.StartWithin = args[0], time.Duration(within)
			if r.Payload, err = a.payload(data); err != nil {
				return err
			}
			ctx, cancel := timeout.bound(ctx)
			defer cancel()
			return a.submitted(ctx, c, r, wait)
		})
	c.Long = c.Short + `. Its id is on stdout; with --wait, the result is. A stored answer, if
there is one and it may be served, is written at once.`
	c.Example = `  forebay submit monthly-report -d '{"month":"2026-11"}' --wait
  forebay submit monthly-report -d @request.json --key order-17`
	f := c.Flags()
	f.StringVarP(&data, "data", "d", "null", "payload: `JSON`, @file, or - for stdin")
	f.BoolVarP(&wait, "wait", "w", false, "wait for the end, and write the result")
	f.BoolVar(&r.NoStale, "no-stale", false, "take no stored answer")
	f.StringVar(&r.IdempotencyKey, "key", "", "Idempotency-Key: the same `key` makes one job")
	f.StringVar(&r.Priority, "priority", "", "`high`, normal or low")
	f.Var(&within, "start-within", "refuse the job rather than start it later")
	f.StringVar(&r.CallbackURL, "callback", "", "`URL` to call when the job ends")
	f.Var(&timeout, "timeout", "how long to wait for all of it")
	c.ValidArgsFunction = a.completed(a.operationNames)
	_ = c.RegisterFlagCompletionFunc("priority", cobra.FixedCompletions(
		[]string{api.High, api.Normal, api.Low}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// payload reads the payload that -d names.
func (a *app) payload(data string) (raw json.RawMessage, err error) {
	raw = json.RawMessage(data)
	if file, is := strings.CutPrefix(data, "@"); is {
		raw, err = os.ReadFile(file)
	} else if data == "-" {
		raw, err = io.ReadAll(a.stdin)
	}
	if err == nil && !json.Valid(raw) {
		err = errors.New("the payload isn't JSON: a text needs quotes of its own, " +
			"as in '\"text\"'")
	}
	if err != nil {
		return nil, &failure{code: exitUsage, text: err.Error()}
	}
	return raw, nil
}

// submitted submits a request and shows the outcome: a job, a stored answer, or a refusal.
func (a *app) submitted(ctx context.Context, c *client.Client, r client.Request, wait bool) error {
	s, err := c.Submit(ctx, r)
	if err != nil {
		return cause(ctx, err)
	}
	if s.JobID == "" {
		return a.stored(s)
	}
	var end error
	if s.Degraded {
		end = code(exitDegraded)
		a.say("degraded (%s): a job of %s instead", s.Reason, s.Job.Operation)
	}
	if s.Replayed {
		a.say("this key has a job already")
	}
	if !wait {
		a.say("%s", text.Standing(s.Job))
		if a.form() == "json" || a.form() == "yaml" {
			return errors.Join(a.show(s.Job, table{}), end)
		}
		fmt.Fprintln(a.stdout, text.Clean(s.JobID))
		return end
	}
	job, err := a.await(ctx, s.Job)
	if err != nil {
		return err
	}
	if job.Status != api.Succeeded {
		return ended(job)
	}
	result, err := c.Result(ctx, job.ID)
	if err != nil {
		return cause(ctx, err)
	}
	return errors.Join(a.showResult(result.ContentType, result.Body), end)
}

// stored writes an answer that made no job.
func (a *app) stored(s *client.Submission) error {
	if err := a.showResult(s.Result.ContentType, s.Result.Body); err != nil {
		return err
	}
	if s.Fresh {
		a.say("a stored answer, %s old, still fresh", text.Span(s.Age.Seconds()))
		return nil
	}
	a.say("degraded (%s): a stored answer, %s old", s.Reason, text.Span(s.Age.Seconds()))
	return code(exitDegraded)
}

// say writes a line of talk.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.stderr, text.Clean(fmt.Sprintf(format, args...)))
}

// cause is why a call failed: the timeout, if it has passed.
func cause(ctx context.Context, err error) error {
	if context.Cause(ctx) == errTimeout {
		return errTimeout
	}
	return err
}

// await waits for the end of a job. On a terminal, a line shows how it gets on.
func (a *app) await(ctx context.Context, job *api.Job) (*api.Job, error) {
	if job.Done {
		return job, nil
	}
	c, err := a.client(0)
	if err != nil {
		return nil, err
	}
	type end struct {
		job *api.Job
		err error
	}
	ended := make(chan end, 1)
	go func() {
		done, err := c.Wait(ctx, job.ID)
		ended <- end{done, err}
	}()
	tick := make(<-chan time.Time) // never
	if a.isTerminal(a.stderr) {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		defer fmt.Fprint(a.stderr, clearLine)
		tick = ticker.C
		fmt.Fprint(a.stderr, text.Clean(job.ID)+"\n"+progress(job, job))
	}
	began := job
	for {
		select {
		case e := <-ended:
			if e.err == nil {
				if at := e.job.FinishedAt; at != nil && a.isTerminal(a.stderr) {
					fmt.Fprint(a.stderr, clearLine)
					a.say("%s in %s", e.job.Status,
						text.Span(at.Sub(e.job.CreatedAt.Time).Seconds()))
				}
				return e.job, nil
			}
			e.err = cause(ctx, e.err)
			if f := a.explainError(e.err); f.code == exitTimeout || ctx.Err() != nil {
				f.text, f.next = f.text+"; the job goes on", "forebay job wait "+job.ID
				return nil, f
			}
			return nil, e.err
		case <-tick:
			within, cancel := context.WithTimeout(ctx, progressEvery)
			if now, err := c.Status(within, job.ID); err == nil {
				fmt.Fprint(a.stderr, clearLine+progress(began, now))
			}
			cancel()
		}
	}
}

// clearLine clears the line of progress, for another to be drawn in its place.
const clearLine = "\r\x1b[K"

// progressEvery is how often the line of progress is drawn. Each costs the server a look.
const progressEvery = time.Second

// progress is the line that shows how a job gets on: how much of the line that was ahead of it at
// first has gone.
func progress(began, now *api.Job) string {
	const width = 20
	done := 1.0
	if began.Queue != nil && began.Queue.Position > 0 && now.Queue != nil {
		done = 1 - float64(now.Queue.Position)/float64(began.Queue.Position)
	}
	full := int(max(0, min(1, done)) * width)
	return "▕" + strings.Repeat("█", full) + strings.Repeat("░", width-full) + "▏ " +
		text.Clean(text.Standing(now))
}

// ended says how a job ended that didn't succeed.
func ended(job *api.Job) error {
	f := &failure{code: exitJobFailed, text: "the job " + job.ID + " is " + job.Status}
	if p := job.Error; p != nil {
		f.text += ": " + p.Error()
		if b := p.BackendAnswer; b != nil {
			f.text += fmt.Sprintf(" (the backend answered %d)", b.Status)
		}
	}
	f.text = strings.TrimSuffix(f.text, ".")
	return f
}

func (a *app) jobCommands() *cobra.Command {
	show := func(use, short string,
		do func(*client.Client, context.Context, string) (*api.Job, error)) *cobra.Command {
		return a.asClient(use, short, 1,
			func(ctx context.Context, c *client.Client, args []string) error {
				job, err := do(c, ctx, args[0])
				if err != nil {
					return err
				}
				return a.showJob(job)
			})
	}
	var timeout duration
	wait := a.asClient("wait JOB [flags]", "Wait for a job's end", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			ctx, cancel := timeout.bound(ctx)
			defer cancel()
			job, err := c.Status(ctx, args[0])
			if err != nil {
				return cause(ctx, err)
			}
			if job, err = a.await(ctx, job); err != nil {
				return err
			}
			if err := a.showJob(job); err != nil || job.Status == api.Succeeded {
				return err
			}
			return ended(job)
		})
	wait.Flags().Var(&timeout, "timeout", "how long to wait")
	result := a.asClient("result JOB", "Write a job's result, byte for byte", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.Result(ctx, args[0])
			if err != nil {
				return err
			}
			return a.showResult(r.ContentType, r.Body)
		})
	return group("job", "Your jobs", wait, result, a.listJobs(),
		show("get JOB", "Show a job", (*client.Client).Status),
		show("cancel JOB", "Cancel a job; the call of a running one is aborted",
			(*client.Client).Cancel))
}

func (a *app) listJobs() *cobra.Command {
	var list client.List
	most := 0
	c := a.asClient("ls [flags]", "List your jobs, newest first", 0,
		func(ctx context.Context, c *client.Client, _ []string) error {
			t := columns("JOB|OPERATION|STATUS|CREATED|STANDS")
			all := []api.Job{}
			for job, err := range c.Jobs(ctx, list) {
				if err != nil {
					return err
				}
				all = append(all, job)
				t.add(job.ID, job.ID, job.Operation, job.Status, a.moment(&job.CreatedAt),
					text.Standing(&job))
				if len(all) == most {
					break
				}
			}
			return a.show(all, t)
		})
	c.Flags().StringVar(&list.Status, "status", "", "`status`, such as queued or failed")
	c.Flags().StringVar(&list.Operation, "operation", "", "`name` of the operation")
	c.Flags().IntVar(&most, "max", 50, "`jobs` at most; 0: all")
	return c
}

// showJob writes a job of the caller's.
func (a *app) showJob(job *api.Job) error {
	if a.form() == "table" {
		return a.showText(text.Job(job, time.Now()))
	}
	raw, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return a.showFlat(raw, nil)
}

func (a *app) explain() *cobra.Command {
	operator := false
	c := command("explain JOB [flags]", "Say what a job, or backend/NAME, waits on", 1, 1,
		func(cmd *cobra.Command, args []string) error {
			if name, is := strings.CutPrefix(args[0], "backend/"); is {
				return a.explainBackend(cmd.Context(), name)
			}
			if strings.ContainsAny(args[0], "/?#%") {
				return usage(cmd, "%q isn't a job's id", args[0])
			}
			ask := reading("/v1/jobs/"+args[0], url.Values{"explain": {"1"}})
			if operator || a.settled.AdminToken != "" {
				ask = reading("/admin/v1/jobs/"+args[0]+"/explain", nil)
			}
			_, err := present(cmd.Context(), a, ask, text.Explain, nil)
			return err
		})
	c.Long = c.Short + `. Clients ask about their own jobs. With an admin token, or with
--operator, any job is explained, with the clients ahead of it.`
	c.Flags().BoolVar(&operator, "operator", false, "ask the admin API")
	return c
}

func (a *app) limits() *cobra.Command {
	return a.asClient("limits", "Show your limits, and what is left of them", 0,
		func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.RateLimits(ctx)
			if err != nil {
				return err
			}
			t := columns("LIMIT|OPERATION|LEFT|OF|PER|RESET|COUNTS PER")
			for _, l := range all.Limits {
				var reset *api.Time
				if l.Reset != 0 {
					reset = &api.Time{Time: time.Unix(l.Reset, 0)}
				}
				per := cmp.Or(l.Window, "at once")
				if !l.Enforced {
					per += " (on trial)"
				}
				t.add(l.Name, l.Name, l.Operation, number(l.Remaining), number(l.Limit), per,
					a.moment(reset), l.Scope)
			}
			return a.show(all, t)
		})
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func (a *app) ops() *cobra.Command {
	return a.asClient("ops", "List the operations that you may request", 0,
		func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Operations(ctx)
			if err != nil {
				return err
			}
			t := columns("OPERATION|COST|LIMITS|WHEN OVERLOADED|STALE FOR")
			for _, o := range all.Operations {
				cost := number(o.Cost.Fixed)
				if o.Cost.Fixed == 0 {
					cost = "payload " + o.Cost.From
				}
				var limits []string
				for _, l := range o.Limits {
					limits = append(limits, l.Name)
				}
				t.add(o.Name, o.Name, cost, strings.Join(limits, ", "),
					strings.Join(o.OnOverload, ", "), o.StaleFor)
			}
			return a.show(all, t)
		})
}

// completeTime bounds a look at the server for completions: a shell waits for it.
const completeTime = 500 * time.Millisecond

// completed completes a first argument from the names that the server has.
func (a *app) completed(names func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || a.settle(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeTime)
		defer cancel()
		found := names(ctx)
		for i, name := range found {
			found[i] = text.Clean(name)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// operationNames are the operations that the caller may request; without an answer, none.
func (a *app) operationNames(ctx context.Context) (names []string) {
	c, err := a.client(1)
	if err != nil {
		return nil
	}
	all, err := c.Operations(ctx)
	if err != nil {
		return nil
	}
	for _, o := range all.Operations {
		names = append(names, o.Name)
	}
	return names
}
