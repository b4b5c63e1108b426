package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/client"
	"github.com/forebay/forebay/internal/text"
)

// Exit codes of all commands but health, which has Nagios's.
const (
	exitFailed    = 1 + iota // the command failed
	exitUsage                // flags or arguments are wrong: nothing was done
	exitRefused              // 429; when to try again is on stderr
	exitDegraded             // the answer isn't new work
	exitNotFound             // no such job, backend or operation
	exitJobFailed            // the job failed, expired or was canceled
	exitTimeout              // --timeout has passed
)

// code ends the command with an exit code and without a message.
type code int

func (c code) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// failure is the error of a command as a person reads it: one line.
type failure struct {
	code  int
	text  string
	next  string // the command to try next; "": none is known
	after string // a line of its own, such as Retry-After; "": none
}

func (f *failure) Error() string {
	line := f.text
	if f.next != "" {
		line += "; try: " + f.next
	}
	return text.Clean(line)
}

// usage is the error of wrong flags or arguments.
func usage(cmd *cobra.Command, format string, a ...any) error {
	return &failure{code: exitUsage, text: fmt.Sprintf(format, a...),
		next: cmd.CommandPath() + " --help"}
}

func failed(format string, a ...any) *failure {
	return &failure{code: exitFailed, text: fmt.Sprintf(format, a...)}
}

// exit writes what went wrong, if anything, and returns the exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return 0
	}
	if c, silent := errors.AsType[code](err); silent {
		return int(c)
	}
	f, plain := errors.AsType[*failure](err)
	if !plain {
		f = a.explainError(err)
	}
	if f.text != "" {
		fmt.Fprintln(a.stderr, "forebay: "+f.Error())
	}
	if f.after != "" {
		fmt.Fprintln(a.stderr, f.after)
	}
	return f.code
}

// explainError says in one line why a command failed.
func (a *app) explainError(err error) *failure {
	e, called := errors.AsType[*client.Error](err)
	base, secret := a.settled.URL, "FOREBAY_KEY"
	if called && strings.Contains(e.Call, " /admin/") {
		base, secret = a.settled.AdminURL, "FOREBAY_ADMIN_TOKEN"
	}
	switch {
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded),
		called && errors.Is(err, client.ErrTooLate) && e.Status == 0 && e.Err == nil:
		return &failure{code: exitTimeout, text: "timed out"}
	case errors.Is(err, context.Canceled):
		return failed("interrupted")
	case errors.Is(err, syscall.EPIPE): // the reader of stdout has had enough
		return failed("")
	case !called:
		return failed("%s", strings.TrimPrefix(err.Error(), "forebay: "))
	case e.Problem != nil:
		return a.explainProblem(e, base, secret)
	case e.Status == 0 && errors.Is(err, http.ErrSchemeMismatch):
		return failed("%s speaks http: write http:// instead of https://", base)
	case e.Status == 0:
		if strings.Contains(e.Err.Error(), "malformed HTTP") {
			return failed("%s answers, but doesn't speak HTTP: is the address right?", base)
		}
		f := failed("no server answers at %s: %v", base, rootCause(e.Err))
		if errors.Is(err, syscall.ECONNREFUSED) {
			f.next = "forebay dev, which starts one; or name yours with --url and --admin-url"
		}
		return f
	case e.Status/100 == 3:
		return failed("%s redirects elsewhere: name the address that it leads to, if you trust it",
			base)
	}
	return failed("%s answers (%d %s), but not as Forebay does: is the address right?",
		base, e.Status, http.StatusText(e.Status))
}

// explainProblem says in one line what a problem is, and which command comes next.
func (a *app) explainProblem(e *client.Error, base, secret string) *failure {
	p := e.Problem
	f := failed("%s: %s", p.Code, p.Detail)
	if p.Detail == "" {
		f.text = p.Code
	}
	for _, wrong := range p.Errors {
		f.text += fmt.Sprintf(" %s: %s", strings.TrimPrefix(wrong.Pointer, "#/"), wrong.Detail)
	}
	f.text = strings.TrimSuffix(f.text, ".")
	switch p.Code {
	case api.CodeUnknownPath, api.CodeMethod:
		return failed("%s doesn't know the call %s: it is older than this command, "+
			"or another listener", base, e.Call)
	case api.CodeUnknownOperation:
		f.code, f.next = exitNotFound, "forebay ops"
	case api.CodeUnknownBackend:
		f.code, f.next = exitNotFound, "forebay backends"
	case api.CodeUnknownJob:
		f.code, f.next = exitNotFound, "forebay job ls"
	case api.CodeUnknownPreview:
		f.code, f.next = exitNotFound, "the same with --dry-run"
	case api.CodeJobGone, api.CodeResultGone, api.CodeNoAnswer, api.CodeNoCallback:
		f.code = exitNotFound
	case api.CodeCanceled:
		f.code = exitJobFailed
	case api.CodeNotFinished:
		if id := after(e.Call, "/jobs/"); id != "" {
			f.next = "forebay job wait " + id
		}
	case api.CodeInvalidFields, api.CodeInvalidRequest:
		f.code = exitUsage
	case api.CodeStore, api.CodeNotReady:
		f.next = "forebay health"
	case api.CodeInvalidCredentials:
		if p.Status == http.StatusUnauthorized {
			f.next = "set " + secret + ", or use a context with it"
		}
	}
	switch p.Status {
	case http.StatusTooManyRequests:
		f.code = exitRefused
		if e.RetryAfter > 0 {
			f.after = fmt.Sprintf("Retry-After: %.0f", e.RetryAfter.Seconds())
		}
	case http.StatusFailedDependency:
		f.code = exitJobFailed
		if b := p.BackendAnswer; b != nil {
			f.text += fmt.Sprintf(" (the backend answered %d)", b.Status)
		}
	case http.StatusPreconditionFailed:
		who := "somebody else"
		if p.Backend != nil && p.Backend.TunedBy != "" {
			who = p.Backend.TunedBy
		}
		f.text = who + " has changed it meanwhile, so nothing was done"
		if name := after(e.Call, "/backends/"); name != "" {
			f.next = "forebay backend " + name
		}
	}
	return f
}

// after is the part of a call's path that follows a prefix; "": there is none.
func after(call, prefix string) string {
	_, name, _ := strings.Cut(call, prefix)
	name, _, _ = strings.Cut(name, "/")
	return name
}

// rootCause is the innermost cause of a failed connection, which repeats no URL.
func rootCause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("%s: %s", d.Name, d.Err)
	}
	if s, ok := errors.AsType[*os.SyscallError](err); ok {
		return s.Err
	}
	return err
}
