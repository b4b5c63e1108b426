package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/text"
)

const (
	// topEvery is how often top reads the backends.
	topEvery = time.Second
	// topKept bounds the moments that top remembers of a backend: a wide terminal shows no more.
	topKept = 600
)

func (a *app) top() *cobra.Command {
	plain, ascii, count := false, false, 0
	every := duration(5 * time.Second)
	c := command("top [flags]", "Watch the backends, and turn them", 0, 0,
		func(cmd *cobra.Command, _ []string) error {
			if plain || !a.isTerminal(a.stdout) || !a.isTerminal(a.stdin) {
				return a.topPlain(cmd.Context(), every, count)
			}
			return a.topScreen(cmd.Context(), ascii || !a.unicode())
		})
	c.Long = c.Short + `. Keys: ? shows them. What is offered is counted from the jobs that
were accepted. Without a terminal, or with --plain, it prints the steps of the history as they come,
as replay does.`
	c.Flags().BoolVar(&plain, "plain", false, "print lines instead of a screen")
	c.Flags().BoolVar(&ascii, "ascii", false, "draw with ASCII alone")
	c.Flags().Var(&every, "every", "length of a step of --plain")
	c.Flags().IntVar(&count, "count", 0, "end after so `many` steps of --plain; 0: never")
	return c
}

// unicode reports whether the terminal's locale has Unicode.
func (a *app) unicode() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := a.variable(name); locale != "" {
			return strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
		}
	}
	return false
}

// sample is a backend at one moment, with what it did since the moment before.
type sample struct {
	at      time.Time
	backend api.Backend
	in, out float64 // jobs accepted and calls begun a second
	first   bool    // in and out aren't known: there is no moment before
}

// next returns the sample that follows s, of the same backend. Counters that fell were begun anew.
func (s sample) next(at time.Time, b api.Backend) sample {
	n := sample{at: at, backend: b, first: s.at.IsZero()}
	if took := at.Sub(s.at).Seconds(); !n.first && took > 0 {
		was, is := s.backend.Outcomes, b.Outcomes
		n.in = max(0, float64(is.Accepted-was.Accepted)/took)
		n.out = max(0, float64(is.Started-was.Started)/took)
	}
	return n
}

// topPlain prints a line for each backend and step of the history, as they come.
func (a *app) topPlain(ctx context.Context, every duration, count int) error {
	var last time.Time
	reach := 2*every + duration(10*time.Second) // there is a step in it that is over
	q := url.Values{"step": {every.String()}, "from": {"-" + reach.String()}}
	for n := 0; ; {
		var h api.History
		_, err := a.get(ctx, reading(historyPath, q), &h)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && last.IsZero():
			return err
		case err != nil: // it may come back
			a.say("%s %v", time.Now().UTC().Format(time.TimeOnly), a.explainError(err))
		}
		if newest := whole(&h, last); newest.After(last) {
			last = newest
			if err := a.showSteps(h); err != nil {
				return err
			}
			if n++; n == count {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(time.Duration(every), maxPoll)):
		}
	}
}

// maxPoll is how late a step of top --plain may be printed.
const maxPoll = 5 * time.Second

// whole leaves a history the newest step that is over, if it is later than last, and returns when
// that began.
func whole(h *api.History, last time.Time) (newest time.Time) {
	for i := range h.Backends {
		points := h.Backends[i].Points
		if n := len(points); n > 0 && points[n-1].Seconds < h.StepSeconds {
			points = points[:n-1]
		}
		points = points[max(0, len(points)-1):]
		if len(points) > 0 && points[0].At.After(last) {
			newest = points[0].At.Time
		}
		h.Backends[i].Points = points
	}
	return newest
}

// showSteps writes a step of each backend.
func (a *app) showSteps(h api.History) error {
	switch a.form() {
	case "json", "yaml":
		return json.NewEncoder(a.stdout).Encode(h)
	case "tsv":
		return a.show(nil, a.historyValues(h))
	}
	return a.showText(text.History(h))
}

// short writes a number with three digits at most.
func short(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

// screen is the state of top. Update and View are functions of it alone: what top asks of the
// server is in do, and the time is in the messages.
type screen struct {
	do     deeds
	ascii  bool
	width  int
	height int

	names   []string            // in the server's order
	history map[string][]sample // by name, newest last
	chosen  int
	err     string // why the newest figures are missing

	ghost   string // the rate that Enter would set; "": none
	undo    tea.Cmd
	ask     string  // the question that y answers
	yes     tea.Cmd // what y does
	message string
	pane    string // text over the plot, until Esc
}

// deeds are what top asks of the server. Each ends with a message.
type deeds struct {
	read    func() tea.Msg
	tune    func(name, what string, body map[string]any) tea.Cmd
	explain func(name string, rate string) tea.Cmd // rate "": as it is
	failed  func(name string) tea.Cmd
	redrive func(name, token string) tea.Cmd // the jobs of a preview
}

// Messages.
type (
	tickMsg  time.Time
	stateMsg struct {
		at       time.Time
		backends []api.Backend
		err      string
	}
	doneMsg   struct{ text string }
	paneMsg   struct{ text string }
	failedMsg api.RedrivePreview
)

func tick() tea.Cmd {
	return tea.Tick(topEvery, func(t time.Time) tea.Msg { return tickMsg(t) })
}

func (s screen) Init() tea.Cmd { return tea.Batch(s.do.read, tick()) }

func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tickMsg:
		return s, tea.Batch(s.do.read, tick())
	case stateMsg:
		return s.seen(msg), nil
	case doneMsg:
		s.message = msg.text
		return s, s.do.read
	case paneMsg:
		s.pane = msg.text
	case failedMsg:
		if s.ask = ""; msg.Jobs == 0 {
			s.message = msg.Backend + " has no failed jobs to redrive"
			return s, nil
		}
		s.ask = fmt.Sprintf("redrive %d failed jobs of %s? y/n", msg.Jobs, msg.Backend)
		s.yes = s.do.redrive(msg.Backend, msg.Token)
	case tea.KeyPressMsg:
		return s.key(msg.String())
	}
	return s, nil
}

// seen takes new figures. Those of backends that are gone are forgotten.
func (s screen) seen(msg stateMsg) screen {
	if s.err = msg.err; msg.err != "" {
		return s
	}
	name := s.name()
	history := map[string][]sample{}
	s.names = nil
	for i, b := range msg.backends {
		s.names = append(s.names, b.Name)
		kept := s.history[b.Name]
		var last sample
		if n := len(kept); n > 0 {
			last = kept[n-1]
			kept = kept[max(0, n+1-topKept):]
		}
		history[b.Name] = append(kept[:len(kept):len(kept)], last.next(msg.at, b))
		if b.Name == name {
			s.chosen = i
		}
	}
	s.history, s.chosen = history, max(0, min(s.chosen, len(s.names)-1))
	return s
}

// name is the chosen backend; "": there is none.
func (s screen) name() string {
	if s.chosen < len(s.names) {
		return s.names[s.chosen]
	}
	return ""
}

// now is the chosen backend's newest sample.
func (s screen) now() sample {
	if h := s.history[s.name()]; len(h) > 0 {
		return h[len(h)-1]
	}
	return sample{}
}

const topHelp = `↑ ↓ j k   choose a backend
+ -       move the rate, as a ghost: nothing is sent yet
Enter     set the ghost's rate
u         undo what was set last
p         pause, or resume
e         explain: what it waits on, and what would be
r         redrive the failed jobs, after a question
Esc       drop the ghost, close this
q         end`

func (s screen) key(key string) (tea.Model, tea.Cmd) {
	if s.ask != "" {
		s.ask, s.message = "", ""
		if key == "y" {
			return s, s.yes
		}
		s.message = "nothing was done"
		if key != "ctrl+c" {
			return s, nil
		}
	}
	name, b := s.name(), s.now().backend
	switch key {
	case "q", "ctrl+c":
		return s, tea.Quit
	case "?":
		s.pane = topHelp
	case "esc":
		s.ghost, s.pane, s.message = "", "", ""
	case "up", "k", "down", "j":
		if key == "up" || key == "k" {
			s.chosen = max(0, s.chosen-1)
		} else {
			s.chosen = max(0, min(s.chosen+1, len(s.names)-1))
		}
		s.ghost, s.pane = "", ""
	}
	if name == "" {
		return s, nil
	}
	switch key {
	case "+", "=", "-":
		from := s.ghost
		if from == "" {
			from = text.Target(b.Rate)
		}
		moved, ok := step(from, key != "-")
		if !ok {
			s.message = "the rate " + from + " has no step: forebay rate sets one"
			return s, nil
		}
		s.ghost, s.message = moved, ""
		return s, s.do.explain(name, moved)
	case "enter":
		if s.ghost == "" {
			return s, nil
		}
		set, was := s.ghost, text.Target(b.Rate)
		s.ghost, s.pane = "", ""
		s.undo = s.do.tune(name, "rate "+was+" again", map[string]any{"rate": was})
		return s, s.do.tune(name, "rate "+set+", was "+was+"; u undoes",
			map[string]any{"rate": set})
	case "u":
		undo := s.undo
		s.undo = nil
		return s, undo
	case "p":
		word := map[bool]string{true: "paused", false: "resumed"}[!b.Paused]
		s.undo = s.do.tune(name, "as before", map[string]any{"paused": b.Paused})
		return s, s.do.tune(name, word+"; u undoes", map[string]any{"paused": !b.Paused})
	case "e":
		return s, s.do.explain(name, "")
	case "r":
		return s, s.do.failed(name)
	}
	return s, nil
}

// step moves a rate by about a tenth, to a number that a person would write.
func step(rate string, up bool) (moved string, ok bool) {
	amount, unit, _ := strings.Cut(rate, "/")
	x, err := strconv.ParseFloat(amount, 64)
	if err != nil || x <= 0 || unit == "" {
		return "", false
	}
	at := x
	if !up {
		at *= 0.999 // 10 goes down to 9.5, not to 9
	}
	size := math.Pow(10, math.Floor(math.Log10(at)))
	by := size / 10
	switch digit := at / size; {
	case digit >= 5:
		by = size / 2
	case digit >= 2:
		by = size / 5
	}
	if !up {
		by = -by
	}
	return strconv.FormatFloat(math.Round((x+by)/math.Abs(by))*math.Abs(by), 'g', 6, 64) + "/" +
		unit, true
}

// View draws the screen.
func (s screen) View() tea.View {
	v := tea.NewView(s.draw())
	v.AltScreen = true
	v.WindowTitle = "forebay top"
	return v
}

func (s screen) draw() string {
	width, height := max(s.width, 40), max(s.height, 12)
	var lines []string
	add := func(format string, args ...any) {
		lines = append(lines, fit(text.Clean(fmt.Sprintf(format, args...)), width))
	}
	longest := len("BACKEND")
	for _, name := range s.names {
		longest = max(longest, len(name))
	}
	spark := max(0, min(30, width-longest-76))
	add("  %-*s  %-12s %-18s %9s %9s  %-17s %8s  %s", longest, "BACKEND", "STATE", "RATE", "IN/S",
		"OUT/S", "LINE", "WAIT", "OUT")
	for i, name := range s.names {
		h := s.history[name]
		n := h[len(h)-1]
		b, mark := n.backend, " "
		if i == s.chosen {
			mark = ">"
		}
		add("%s %-*s  %-12s %-18s %9s %9s  %s %9s %8s  %s", mark, longest, name, text.State(b),
			text.InForce(b.Rate), short(n.in), short(n.out), s.gauge(b, 7),
			text.Line(b),
			text.Span(b.OldestWaitSeconds), s.spark(h, spark))
		if i == s.chosen {
			lines[len(lines)-1] = bold(lines[len(lines)-1])
		}
		if len(lines) >= height-8 { // the plot has the rest
			break
		}
	}
	switch {
	case s.err != "":
		add("%s", s.err)
	case len(s.names) == 0:
		add("waiting for the first figures")
	}
	lines = append(lines, "")
	foot := "? keys   q end"
	switch {
	case s.ask != "":
		foot = s.ask
	case s.ghost != "":
		foot = fmt.Sprintf("%s: rate %s -> %s   Enter sets it, Esc drops it", s.name(),
			text.Target(s.now().backend.Rate), s.ghost)
	case s.message != "":
		foot = s.message
	}
	space := height - len(lines) - 1
	var body []string
	if s.pane != "" {
		for line := range strings.SplitSeq(strings.TrimRight(s.pane, "\n"), "\n") {
			body = append(body, fit(text.Clean(line), width))
		}
		if s.ghost != "" && space-len(body) > 5 {
			body = append(body, s.plot(width, space-len(body))...)
		}
	} else if s.name() != "" {
		body = s.plot(width, space)
	}
	lines = append(lines, body[:min(len(body), space)]...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines, fit(text.Clean(foot), width)), "\n")
}

// bold marks the chosen line. Bubble Tea leaves marks out where NO_COLOR is set.
func bold(line string) string { return "\x1b[1m" + line + "\x1b[0m" }

// fit cuts a line to the screen's width, in characters.
func fit(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width])
	}
	return line
}

// gauge shows how full a backend's line is.
func (s screen) gauge(b api.Backend, width int) string {
	full := 0
	if c := b.Capacity.Effective; c > 0 {
		full = min(width, int(math.Ceil(float64(b.Waiting+b.Delayed)/float64(c)*float64(width))))
	}
	on, off := "█", "░"
	if s.ascii {
		on, off = "#", "."
	}
	return strings.Repeat(on, full) + strings.Repeat(off, width-full)
}

// spark shows the newest rates of starts in one line.
func (s screen) spark(h []sample, width int) string {
	marks := []rune(" ▁▂▃▄▅▆▇█")
	if s.ascii {
		marks = []rune(" .:-=+*#%")
	}
	h = h[max(0, len(h)-width):]
	most := highest(h, 0)
	line := make([]rune, 0, len(h))
	for _, n := range h {
		line = append(line, marks[int(math.Round(n.out/most*float64(len(marks)-1)))])
	}
	return string(line)
}

// highest is the top of a plot of samples, at least floor, and never 0.
func highest(h []sample, floor float64) float64 {
	most := floor
	for _, n := range h {
		most = max(most, n.in, n.out)
	}
	if most <= 0 {
		return 1
	}
	return most
}

// perSecond reads a rate as jobs a second; 0: it has no bound, or isn't known.
func perSecond(rate string) float64 {
	if r, err := leaky.ParseRate(rate); err == nil && r != leaky.Unlimited {
		return r.PerSecond()
	}
	return 0
}

// plot draws the chosen backend: starts as an area, accepted jobs as a line above it, the rate in
// force and the ghost's as levels.
func (s screen) plot(width, height int) []string {
	const margin = 8
	h := s.history[s.name()]
	if height < 4 || width < margin+10 {
		return nil
	}
	across, down := 1, 1 // dots in a cell
	if !s.ascii {
		across, down = 2, 4
	}
	columns, rows := (width-margin)*across, (height-2)*down
	h = h[max(0, len(h)-columns):]
	rate, ghost := perSecond(s.now().backend.Rate.Effective), perSecond(s.ghost)
	most := highest(h, max(rate, ghost)) * 1.05
	level := func(x float64) int { return rows - 1 - int(min(1, x/most)*float64(rows-1)) }
	cells := newCells(width-margin, height-2, s.ascii)
	for x := range columns {
		if rate > 0 && x%4 < 2 {
			cells.set(x, level(rate), '-')
		}
		if ghost > 0 && x%8 < 2 {
			cells.set(x, level(ghost), '=')
		}
	}
	from := columns - len(h)
	for i, n := range h {
		if n.first {
			continue
		}
		for y := level(n.out); n.out > 0 && y < rows; y++ {
			cells.set(from+i, y, '#')
		}
		cells.set(from+i, level(n.in), 'o')
	}
	out := []string{fit(text.Clean(fmt.Sprintf("%s   area: calls begun   line: jobs accepted   "+
		"dashes: rate in force, %s", s.name(), s.now().backend.Rate.Effective)), width)}
	for i, line := range cells.lines() {
		label := ""
		switch i {
		case 0:
			label = short(most) + "/s"
		case height - 3:
			label = "0"
		}
		out = append(out, fmt.Sprintf("%*s %s", margin-1, label, line))
	}
	return append(out, fmt.Sprintf("%*s %*s", margin-1, "", width-margin, "now"))
}

// cells are a raster of dots: braille, eight to a character, or characters themselves.
type cells struct {
	rows  [][]rune
	ascii bool
}

func newCells(width, height int, ascii bool) cells {
	empty := '\u2800'
	if ascii {
		empty = ' '
	}
	c := cells{ascii: ascii}
	for range height {
		c.rows = append(c.rows, []rune(strings.Repeat(string(empty), width)))
	}
	return c
}

// set sets a dot, which ASCII shows as mark. Dots outside are left out.
func (c cells) set(x, y int, mark rune) {
	if c.ascii {
		if y >= 0 && y < len(c.rows) && x >= 0 && x < len(c.rows[y]) {
			c.rows[y][x] = mark
		}
		return
	}
	if x < 0 || y < 0 || y/4 >= len(c.rows) || x/2 >= len(c.rows[y/4]) {
		return
	}
	bits := [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}
	c.rows[y/4][x/2] |= bits[y%4][x%2]
}

func (c cells) lines() (lines []string) {
	for _, row := range c.rows {
		lines = append(lines, string(row))
	}
	return lines
}

// topScreen runs top on the terminal until q, Ctrl-C or the end of ctx.
func (a *app) topScreen(ctx context.Context, ascii bool) error {
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(a.stdin),
		tea.WithOutput(a.stdout), tea.WithoutSignalHandler()}
	if _, none := a.env("NO_COLOR"); none {
		options = append(options, tea.WithEnvironment(append(os.Environ(), "NO_COLOR=1")))
	}
	_, err := tea.NewProgram(screen{do: a.deeds(ctx), ascii: ascii}, options...).Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// deeds are what top asks of the server, by this app.
func (a *app) deeds(ctx context.Context) deeds {
	quiet := *a
	quiet.stdout, quiet.stderr, quiet.format = io.Discard, io.Discard, "table"
	a = &quiet
	said := func(done string, err error) tea.Msg {
		if err != nil {
			done = a.explainError(err).Error()
		}
		return doneMsg{done}
	}
	return deeds{
		read: func() tea.Msg {
			var all api.Backends
			if _, err := a.get(ctx, reading(backendsPath, nil), &all); err != nil {
				return stateMsg{err: a.explainError(err).Error()}
			}
			return stateMsg{at: time.Now(), backends: all.Backends}
		},
		tune: func(name, what string, body map[string]any) tea.Cmd {
			return func() tea.Msg {
				_, err := a.do(ctx, call{method: "PATCH", path: backendPath(name), body: body})
				return said(name+": "+what, err)
			}
		},
		explain: func(name, rate string) tea.Cmd {
			return func() tea.Msg {
				var f api.Forecast
				c := reading(backendPath(name)+"/forecast", url.Values{"rate": {rate}})
				if _, err := a.get(ctx, c, &f); err != nil {
					return said("", err)
				}
				return paneMsg{text.Forecast(f)}
			}
		},
		failed: func(name string) tea.Cmd {
			return func() tea.Msg {
				p, err := a.previewed(ctx, name, nil)
				if err != nil {
					return said("", err)
				}
				return failedMsg(p)
			}
		},
		redrive: func(name, token string) tea.Cmd {
			return func() tea.Msg {
				done, err := present(ctx, a, redriving(name, map[string]any{"limit_to": token},
					false), text.Redriven, nil)
				return said(name+": "+text.Redriven(done), err)
			}
		},
	}
}
