package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const operatingPage = "../../docs/operating.md"

// line is a command of a page's block, with the exit code that stands below it.
type line struct {
	text string
	exit int
}

// linesOf are the lines of a page that begin with a prompt.
func linesOf(page string) (lines []line) {
	for text := range strings.Lines(page) {
		text = strings.TrimSpace(text)
		if command, is := strings.CutPrefix(text, "$ "); is {
			lines = append(lines, line{text: command})
		} else if exit, is := strings.CutPrefix(text, "exit "); is {
			lines[len(lines)-1].exit, _ = strconv.Atoi(exit)
		}
	}
	return lines
}

const operatingConfig = `
redis: {url: "REDIS"}
worker: {embedded: true}
shutdown_delay: 0s
identity:
  clients:
    - name: acme
      tier: free
      key_sha256: [f73d2b9a2ca9970066a727180dfcae4a87b527e111371d49efe9195dba2a373e]
    - name: globex
      tier: free
      key_sha256: [51d56fdecb5767542506520cf28ea6cb8ebcda18f17ba5ff085dcef4f85f3322]
tiers:
  free:
    limits: [{name: trial, algorithm: fixed-window, limit: 1, window: 1h, enforce: false}]
backends:
  reports: {url: "BACKEND", drain: {rate: 10/s}, retry: {attempts: 2}}
operations:
  monthly-report: {backend: reports, path: /, cache: {fresh_for: 1h}}
  invoice: {backend: reports, path: /invoice}
`

// An operator who types what docs/operating.md shows, while the same happens as there, gets no
// errors, and the exit codes that stand there.
func TestTheOperatorsPageIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(operatingPage)
	if err != nil {
		t.Fatal(err)
	}
	backend := &fragile{}
	public, admin, _ := startServer(t, backend, operatingConfig)
	s := newShell(t, "FOREBAY_URL="+public, "FOREBAY_ADMIN_URL="+admin)
	submit := func(client, operation, payload string, flags ...string) {
		t.Helper()
		args := append([]string{"submit", operation, "-d", payload}, flags...)
		env := map[string]string{"FOREBAY_URL": public,
			"FOREBAY_KEY": "key-" + client + "-0123456789"}
		var out bytes.Buffer
		if got := runForebay(t.Context(), func(name string) (string, bool) {
			value, set := env[name]
			return value, set
		}, "", &out, &out, false, args...); got != 0 {
			t.Fatalf("%v ended with %d: %s", args, got, out.String())
		}
	}
	report := func(payload string, flags ...string) func() {
		return func() { submit("acme", "monthly-report", payload, flags...) }
	}
	// What happens before a line is typed for the first time.
	meanwhile := map[string]func(){
		"forebay health": func() { s.until(`^ok\tworkers\t\t1`, "forebay health") },
		"forebay replay --from 10m --step 1m": func() { // after this, the walk begins
			backend.answer(503, "1", "")
			for n := range 3 {
				submit("acme", "monthly-report", fmt.Sprint(n))
				submit("globex", "monthly-report", fmt.Sprint(n+10))
			}
			s.until(`^critical\tbackend\treports\t`, "forebay health")
		},
		"forebay resume reports": func() {
			backend.answer(500, "", "/invoice")
			for range 5 {
				submit("acme", "invoice", "1")
			}
		},
		"forebay jobs ls --backend reports --status failed": func() {
			s.until(`(?s)(invoice.*){5}`, "forebay jobs ls --backend reports --status failed")
		},
		"forebay jobs redrive $JOB":    func() { backend.answer(200, "", "") },
		"forebay books reports":        func() { s.until(`\tbalanced\t`, "forebay books reports") },
		"forebay cache ls":             report(`{"month":11}`, "--wait"),
		"forebay shadow --limit trial": report(`{"month":12}`),
	}
	for _, l := range linesOf(string(page)) {
		if before := meanwhile[l.text]; before != nil {
			delete(meanwhile, l.text)
			before()
		}
		if out, exit := s.run(l.text); exit != l.exit {
			t.Fatalf("$ %s\n%sexit %d, not %d", l.text, out, exit, l.exit)
		} else {
			t.Logf("$ %s\n%s", l.text, out)
		}
	}
	for text := range meanwhile {
		t.Errorf("the page doesn't say: $ %s", text)
	}
}

// Commands in the page's sentences are such as there are.
func TestTheOperatorsPageNamesCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(operatingPage)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("`(forebay [a-z][^`]*)`").FindAllStringSubmatch(string(page), -1)
	for _, command := range found {
		commandOf(t, command[1])
	}
	if len(found) < 5 {
		t.Errorf("found %d commands", len(found))
	}
}

// shell runs lines as a person types them, one after the other: a line NAME=$(...) sets a variable.
type shell struct {
	t   *testing.T
	env []string
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", runMain, self)
	if err := os.WriteFile(filepath.Join(dir, "forebay"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return &shell{t, append(env, "PATH="+dir+":"+os.Getenv("PATH"), "USER=kim",
		"FOREBAY_CONTEXTS="+filepath.Join(dir, "contexts.json"))}
}

// run runs a line, for a minute at most, and returns all that it wrote and its exit code.
func (s *shell) run(text string) (out string, exit int) {
	s.t.Helper()
	name, _, sets := strings.Cut(text, "=$(")
	if sets = sets && !strings.Contains(name, " "); sets {
		text += ` && test -n "$` + name + `" && printf %s "$` + name + `"`
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", text)
	c.Env = s.env
	written, err := c.CombinedOutput()
	ended, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case failed:
		exit = ended.ExitCode()
	case err != nil:
		s.t.Fatal(err)
	case sets:
		s.env = append(s.env, name+"="+string(written))
	}
	return string(written), exit
}

// until repeats a line until its output has a match, for half a minute at most.
func (s *shell) until(pattern, text string) {
	s.t.Helper()
	want := regexp.MustCompile("(?m)" + pattern)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		out, _ := s.run(text)
		if want.MatchString(out) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("$ %s\n%s\nno match of %s", text, out, pattern)
		}
	}
}
