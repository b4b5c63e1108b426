// Command forebay is Forebay for people: clients submit and follow jobs, operators look and turn,
// and dev starts a whole Forebay to try. stdout is data and stderr is talk. The exit codes are
// those of exit.go.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forebay/forebay/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, process{args: os.Args[1:], env: os.LookupEnv, stdin: os.Stdin,
		stdout: os.Stdout, stderr: os.Stderr, isTerminal: isTerminal}))
}

// process is the environment of the command.
type process struct {
	args           []string // without the command's name
	env            func(string) (string, bool)
	stdin          io.Reader
	stdout, stderr io.Writer
	isTerminal     func(stream any) bool
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// app is one run of the command.
type app struct {
	process
	format  string // of -o; "": by what stdout is
	flags   server // of the flags; a field that is "" comes from elsewhere
	context string // of --context

	settled server // once settle has run
}

// run runs the command until it is done or ctx ends, and returns its exit code.
func run(ctx context.Context, p process) int {
	a := &app{process: p}
	root := a.root()
	root.SetArgs(p.args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	return a.exit(root.ExecuteContext(ctx))
}

// Groups of commands in the help.
const (
	forClients   = "clients"
	forOperators = "operators"
	forMachines  = "local"
)

func (a *app) root() *cobra.Command {
	root := group("forebay", "An asynchronous job queue that protects a fragile backend")
	root.Long = root.Short + `.

Without a server to hand, "forebay dev" starts one to try.

Servers: FOREBAY_URL and FOREBAY_KEY for clients' commands (default ` + defaultURL + `),
FOREBAY_ADMIN_URL and FOREBAY_ADMIN_TOKEN for operators' (default ` + defaultAdminURL + `),
or a context (forebay context --help).

Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 4 degraded answer, 5 not found, 6 job failed,
7 timed out; for health: 0 ok, 1 warning, 2 critical, 3 unknown.`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd, "%v", err)
	})
	root.AddGroup(&cobra.Group{ID: forClients, Title: "For clients:"},
		&cobra.Group{ID: forOperators, Title: "For operators:"},
		&cobra.Group{ID: forMachines, Title: "On this machine:"})
	root.SetHelpCommandGroupID(forMachines)
	root.SetCompletionCommandGroupID(forMachines)
	f := root.PersistentFlags()
	f.StringVarP(&a.format, "output", "o", "",
		"`form` of the output: table, tsv, json, yaml or name; default: table on a terminal, "+
			"else tsv")
	f.StringVar(&a.flags.URL, "url", "", "`URL` of the server (FOREBAY_URL)")
	f.StringVar(&a.flags.AdminURL, "admin-url", "", "`URL` of its admin API (FOREBAY_ADMIN_URL)")
	f.StringVar(&a.context, "context", "", "`name` of the context to use (FOREBAY_CONTEXT)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return a.settle(cmd)
	}
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{"table", "tsv", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	for id, list := range map[string][]*cobra.Command{
		forClients: a.clientCommands(), forOperators: a.operatorCommands(),
		forMachines: a.localCommands(),
	} {
		for _, c := range list {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	return root
}

// group is a command that only has others. An unknown one is an error that names the near one.
func group(use, short string, of ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, SuggestionsMinimumDistance: 2}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return usage(cmd, "there is no command %q; did you mean %q?", args[0], near[0])
		}
		return usage(cmd, "there is no command %q", args[0])
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	c.AddCommand(of...)
	return c
}

// command is a command with between least and most arguments, whose names are in use.
func command(use, short string, least, most int,
	do func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, DisableFlagsInUseLine: true,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) < least:
				return usage(cmd, "an argument is missing")
			case len(args) > most:
				return usage(cmd, "there is no use for the argument %q", args[most])
			}
			return nil
		},
		RunE: do,
	}
}

// asClient is a command of clients: it gets the client of the public API. Commands try once, since
// a person or a script decides on another try.
func (a *app) asClient(use, short string, arguments int,
	do func(ctx context.Context, c *client.Client, args []string) error) *cobra.Command {
	return command(use, short, arguments, arguments, func(cmd *cobra.Command, args []string) error {
		c, err := a.client(1)
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args)
	})
}

// client returns a client that tries each call so often; 0: as package client does.
func (a *app) client(attempts int) (*client.Client, error) {
	return client.New(a.settled.URL, client.Config{Key: a.settled.Key, MaxAttempts: attempts})
}
