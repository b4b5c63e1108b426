package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Where a Forebay started by "forebay dev" is.
const (
	defaultURL      = "http://127.0.0.1:8080"
	defaultAdminURL = "http://127.0.0.1:8081"
)

// server is a Forebay and the secrets for it. Printing one would show them.
type server struct {
	URL        string `json:"url,omitempty"`
	Key        string `json:"key,omitempty"`
	AdminURL   string `json:"admin_url,omitempty"`
	AdminToken string `json:"admin_token,omitempty"`
}

// or fills what is empty from o.
func (s *server) or(o server) {
	*s = server{cmp.Or(s.URL, o.URL), cmp.Or(s.Key, o.Key), cmp.Or(s.AdminURL, o.AdminURL),
		cmp.Or(s.AdminToken, o.AdminToken)}
}

// contexts is the contexts file: named servers.
type contexts struct {
	Current  string            `json:"current,omitempty"`
	Contexts map[string]server `json:"contexts"`
}

// variable returns the value of an environment variable; "": it isn't set.
func (a *app) variable(name string) string {
	value, _ := a.env(name)
	return value
}

// settle finds out which server to use: the flags', then that of a context that was named, then the
// environment's, then that of the current context, then the default.
func (a *app) settle(cmd *cobra.Command) error {
	if !slices.Contains([]string{"", "table", "tsv", "json", "yaml", "name"}, a.format) {
		return usage(cmd, "there is no output form %q", a.format)
	}
	c, err := a.contexts()
	if err != nil {
		return err
	}
	a.settled = a.flags
	// fill takes what is missing from o. A secret stays with its own server's URL, unless it is the
	// environment's and the URL is a flag's.
	fill := func(o server, environment bool) {
		if at := a.settled.URL; at != "" && !(environment && at == a.flags.URL) {
			o.Key = ""
		}
		if at := a.settled.AdminURL; at != "" && !(environment && at == a.flags.AdminURL) {
			o.AdminToken = ""
		}
		a.settled.or(o)
	}
	named := cmp.Or(a.context, a.variable("FOREBAY_CONTEXT"))
	if s, known := c.Contexts[named]; known {
		fill(s, false)
	} else if named != "" && !within(cmd, "context") {
		return &failure{code: exitUsage, text: "there is no context " + named,
			next: "forebay context ls"}
	}
	fill(server{URL: a.variable("FOREBAY_URL"), Key: a.variable("FOREBAY_KEY"),
		AdminURL:   a.variable("FOREBAY_ADMIN_URL"),
		AdminToken: a.variable("FOREBAY_ADMIN_TOKEN")}, true)
	if named == "" {
		fill(c.Contexts[c.Current], false)
	}
	a.settled.or(server{URL: defaultURL, AdminURL: defaultAdminURL})
	return nil
}

// within reports whether a command is one of a group's.
func within(cmd *cobra.Command, group string) bool {
	return cmd.HasParent() && (cmd.Name() == group || cmd.Parent().Name() == group)
}

// contextsPath is the contexts file: FOREBAY_CONTEXTS, or one in the user's configuration.
func (a *app) contextsPath() string {
	if path := a.variable("FOREBAY_CONTEXTS"); path != "" {
		return path
	}
	dir := a.variable("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return ""
		}
	}
	return filepath.Join(dir, "forebay", "contexts.json")
}

// contexts reads the contexts file; a missing one has none.
func (a *app) contexts() (contexts, error) {
	c := contexts{Contexts: map[string]server{}}
	path := a.contextsPath()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || path == "" {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return c, &failure{code: exitUsage, text: path + " has secrets, and others may read it",
			next: "chmod 600 " + path}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, failed("%s: %v", path, err)
	}
	if c.Contexts == nil {
		c.Contexts = map[string]server{}
	}
	return c, nil
}

// save replaces the contexts file whole. Only its owner may read it.
func (c contexts) save(path string) error {
	if path == "" {
		return failed("there is no home directory: set FOREBAY_CONTEXTS to a file")
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func (a *app) contextCommands() *cobra.Command {
	ls := command("ls", "List the contexts", 0, 0, func(*cobra.Command, []string) error {
		c, err := a.contexts()
		if err != nil {
			return err
		}
		t := columns("CURRENT|NAME|URL|ADMIN URL")
		for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
			s, mark := c.Contexts[name], ""
			if name == c.Current {
				mark = "*"
			}
			t.add(name, mark, name, s.URL, s.AdminURL)
			s.Key, s.AdminToken = "", ""
			c.Contexts[name] = s
		}
		return a.show(c, t)
	})
	use := command("use NAME", "Make a context the current one", 1, 1,
		func(_ *cobra.Command, args []string) error {
			c, err := a.contexts()
			if err != nil {
				return err
			}
			if _, known := c.Contexts[args[0]]; !known {
				return &failure{code: exitNotFound, text: "there is no context " + args[0],
					next: "forebay context ls"}
			}
			c.Current = args[0]
			return c.save(a.contextsPath())
		})
	var to server
	set := command("set NAME [flags]", "Create or change a context, by --url, --admin-url, and",
		1, 1, func(cmd *cobra.Command, args []string) error {
			c, err := a.contexts()
			if err != nil {
				return err
			}
			to.URL, to.AdminURL = a.flags.URL, a.flags.AdminURL
			in := bufio.NewReader(a.stdin)
			for _, secret := range []*string{&to.Key, &to.AdminToken} {
				if *secret != "-" {
					continue
				}
				line, err := in.ReadString('\n')
				if *secret = strings.TrimSpace(line); *secret == "" {
					return usage(cmd, "no secret came on stdin (%v)", err)
				}
			}
			to.or(c.Contexts[args[0]])
			c.Contexts[args[0]] = to
			if c.Current == "" {
				c.Current = args[0]
			}
			path := a.contextsPath()
			if err := c.save(path); err != nil {
				return err
			}
			fmt.Fprintln(a.stderr, "saved in "+path)
			return nil
		})
	set.Flags().StringVar(&to.Key, "key", "", "API `key`; - reads a line of stdin")
	set.Flags().StringVar(&to.AdminToken, "admin-token", "",
		"admin `token`; - reads a line of stdin")
	all := group("context", "Name servers, and choose one", ls, use, set)
	all.Long = all.Short + `.

A context is a server's addresses and secrets under a name, in a file that only its owner may read.
Flags go before --context, that before the environment's variables, and those before the current
context.`
	return all
}
