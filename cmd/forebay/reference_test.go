package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// reference writes docs/cli.md from the table of commands.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# The command forebay\n\n" +
		"<!-- Made from the commands' help: go test ./cmd/forebay -run Reference -update -->\n\n" +
		strings.ReplaceAll(root.Long, "\n\nExit codes:", "\n\n**Exit codes:**") + "\n\n" +
		wrap("stdout is data, and stderr is talk. On a terminal stdout has tables; elsewhere it "+
			"has lines of values between tabs, without a head. No command asks anything without a "+
			"terminal: where one would, it ends with 2 and names the flag that says yes. "+
			"`NO_COLOR` turns colours off.") + "\n\nFlags of all commands:\n\n")
	flags(&b, root.PersistentFlags())
	for _, g := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID && c.Name() != "help" && c.Name() != "completion" {
				section(&b, c)
			}
		}
	}
	return b.String()
}

func section(b *strings.Builder, c *cobra.Command) {
	if !c.HasSubCommands() {
		fmt.Fprintf(b, "\n### forebay %s\n\n", strings.TrimPrefix(c.CommandPath(), "forebay "))
		long := c.Long
		if long == "" {
			long = c.Short + "."
		}
		fmt.Fprintf(b, "`%s`\n\n%s\n", c.UseLine(), wrap(long))
		if c.Example != "" {
			fmt.Fprintf(b, "\n```\n%s\n```\n", unindent(c.Example))
		}
		if c.LocalNonPersistentFlags().HasAvailableFlags() {
			b.WriteByte('\n')
			flags(b, c.LocalNonPersistentFlags())
		}
		return
	}
	if c.Long != "" {
		fmt.Fprintf(b, "\n### %s\n\n%s\n", c.CommandPath(), wrap(c.Long))
	}
	for _, sub := range c.Commands() {
		section(b, sub)
	}
}

// flags writes flags as a table.
func flags(b *strings.Builder, set *pflag.FlagSet) {
	b.WriteString("| flag | |\n|---|---|\n")
	var rows []string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		value, use := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0" {
			use += " (default " + d + ")"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", name, use))
	})
	slices.Sort(rows)
	b.WriteString(strings.Join(rows, ""))
}

func unindent(s string) string { return strings.ReplaceAll("\n"+s, "\n  ", "\n")[1:] }

// wrap breaks paragraphs into lines of at most 100 columns.
func wrap(text string) string {
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		line, lines := "", []string{}
		for _, word := range strings.Fields(paragraph) {
			if line != "" && len(line)+1+len(word) > 100 {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		paragraphs = append(paragraphs, strings.Join(append(lines, line), "\n"))
	}
	return strings.Join(paragraphs, "\n\n")
}
