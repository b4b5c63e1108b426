package main

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/cmd/internal/front"
	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/docs"
	"github.com/forebay/forebay/internal/text"
)

func (a *app) localCommands() []*cobra.Command {
	return []*cobra.Command{a.dev(), a.configCommands(), a.ping(), a.contextCommands(), a.version(),
		a.docs()}
}

func (a *app) dev() *cobra.Command {
	var listen, admin, level string
	c := command("dev [flags]", "Start a Forebay to try, with a fragile backend, in memory", 0,
		0, func(cmd *cobra.Command, _ []string) error {
			var args []string
			for _, f := range [][2]string{{"-listen", listen}, {"-admin-listen", admin},
				{"-log", level}} {
				if f[1] != "" {
					args = append(args, f[0], f[1])
				}
			}
			exit := front.Run(cmd.Context(), wire.Process{Args: args, Env: a.env,
				Stdout: a.stdout, Stderr: a.stderr})
			if exit != wire.ExitOK {
				return code(exit)
			}
			return nil
		})
	c.Flags().StringVar(&listen, "listen", "", "`address` of the public listener")
	c.Flags().StringVar(&admin, "admin-listen", "", "`address` of the admin listener")
	c.Flags().StringVar(&level, "log", "", "least `level` to log: debug, info, warn or error")
	return c
}

func (a *app) configCommands() *cobra.Command {
	check := command("check FILE", "Check a config, and print it as it would be in effect", 1, 1,
		func(_ *cobra.Command, args []string) error {
			if exit := wire.Check(args[0], a.env, a.stdout, a.stderr); exit != wire.ExitOK {
				return code(exit)
			}
			return nil
		})
	check.ValidArgsFunction = nil // files
	diff := command("diff FILE", "Compare a config file with what runs", 1, 1,
		func(cmd *cobra.Command, args []string) error {
			return a.configDiff(cmd.Context(), args[0])
		})
	diff.Long = diff.Short + `: with the config of the api process that answers, with defaults
and without secrets, and with the live overrides. Exits with 1 if anything differs. Values from
the environment aren't compared, since neither side shows them.`
	diff.ValidArgsFunction = nil
	return group("config", "The config file", check, diff)
}

// configDiff writes how a file differs from what runs, as a unified diff, and the live overrides.
func (a *app) configDiff(ctx context.Context, file string) error {
	c, _, err := wire.Load(file, a.env)
	if err != nil {
		return &failure{code: exitUsage, text: err.Error()}
	}
	var running api.RunningConfig
	if _, err := a.get(ctx, reading("/admin/v1/config", nil), &running); err != nil {
		return err
	}
	var live api.Backends
	if _, err := a.get(ctx, reading("/admin/v1/backends", nil), &live); err != nil {
		return err
	}
	differs := diff.Diff(running.Process, []byte(running.Config), file, []byte(c.Describe()))
	a.stdout.Write(differs)
	same := len(differs) == 0
	for _, b := range live.Backends {
		for _, line := range text.Overrides(b, time.Now()) {
			fmt.Fprintln(a.stdout, "live", line)
			same = false
		}
	}
	if !same {
		return code(exitFailed)
	}
	return nil
}

func (a *app) ping() *cobra.Command {
	timeout := duration(3 * time.Second)
	c := command("ping [URL]", "Ask whether a process is ready, for containers", 0, 1,
		func(cmd *cobra.Command, args []string) error {
			target := a.settled.URL
			if len(args) == 1 {
				target = args[0]
			}
			u, err := url.Parse(target)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return usage(cmd, "the URL has to begin with http:// or https:// and a host")
			}
			if u.Path == "" || u.Path == "/" {
				u.Path = "/readyz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(timeout))
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
			if err != nil {
				return err
			}
			res, err := httpClient.Do(r)
			if err != nil {
				return failed("%s://%s doesn't answer: %v", u.Scheme, u.Host, rootCause(err))
			}
			res.Body.Close()
			if res.StatusCode/100 != 2 {
				return failed("%s answers %s", u.Path, res.Status)
			}
			return nil
		})
	c.Long = c.Short + `. A URL without a path means its /readyz. Exit code 0: it answers with
one of the 200s.`
	c.Flags().Var(&timeout, "timeout", "how long to wait")
	return c
}

func (a *app) version() *cobra.Command {
	return command("version", "Print the version", 0, 0, func(*cobra.Command, []string) error {
		_, err := fmt.Fprintln(a.stdout, "forebay", wire.Version())
		return err
	})
}

func (a *app) docs() *cobra.Command {
	pages := func() (names []string) {
		files, _ := fs.Glob(docs.Pages, "*.md") // the pattern is right
		for _, file := range files {
			names = append(names, strings.TrimSuffix(file, ".md"))
		}
		return names
	}
	c := command("docs [PAGE]", "Print a page of the documentation, or list the pages", 0, 1,
		func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				t := table{}
				for _, name := range pages() {
					page, _ := docs.Pages.ReadFile(name + ".md")
					title, _, _ := strings.Cut(strings.TrimPrefix(string(page), "# "), "\n")
					t.add(name, name, title)
				}
				return a.show(pages(), t)
			}
			page, err := docs.Pages.ReadFile(strings.TrimSuffix(args[0], ".md") + ".md")
			if err != nil {
				return &failure{code: exitNotFound, text: "there is no page " + args[0],
					next: "forebay docs"}
			}
			_, err = a.stdout.Write(page)
			return err
		})
	c.ValidArgsFunction = func(*cobra.Command, []string, string) (
		[]string, cobra.ShellCompDirective) {
		return pages(), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}
