package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/forebay/forebay/api"
)

// asked are the things that a screen asked of the server, in words.
type asked struct{ log []string }

func (a *asked) deeds() deeds {
	note := func(words ...string) tea.Cmd {
		return func() tea.Msg { a.log = append(a.log, strings.Join(words, " ")); return nil }
	}
	return deeds{
		read: note("read"),
		tune: func(name, what string, body map[string]any) tea.Cmd {
			for setting, value := range body {
				if on, is := value.(bool); is {
					value = map[bool]string{true: "on", false: "off"}[on]
				}
				return note(name, setting, value.(string))
			}
			return nil
		},
		explain: func(name, rate string) tea.Cmd { return note("explain", name, rate) },
		failed:  func(name string) tea.Cmd { return note("failed", name) },
		redrive: func(name, token string) tea.Cmd { return note("redrive", name, token) },
	}
}

func aBackend(name, rate string, accepted, started int64) api.Backend {
	return api.Backend{Name: name, Rate: api.Setting[string]{Configured: rate, Effective: rate},
		Capacity: api.Setting[int]{Configured: 10, Effective: 10}, Waiting: 5, WaitingOn: "rate",
		Outcomes: api.Outcomes{Accepted: accepted, Started: started}}
}

// shown is a screen that has seen two backends for two seconds.
func shown(t *testing.T, ascii bool) (screen, *asked) {
	t.Helper()
	a := &asked{}
	s := screen{do: a.deeds(), ascii: ascii}
	begin := time.Date(2026, 11, 30, 16, 0, 0, 0, time.UTC)
	s = send(t, s, tea.WindowSizeMsg{Width: 100, Height: 20})
	for i := range int64(3) {
		s = send(t, s, stateMsg{at: begin.Add(time.Duration(i) * time.Second),
			backends: []api.Backend{aBackend("exports", "2/s", 0, 0),
				aBackend("reports", "10/s", 40*i, 8*i)}})
	}
	return s, a
}

// send gives a screen a message, and does what it asks for.
func send(t *testing.T, s screen, msg tea.Msg) screen {
	t.Helper()
	next, do := s.Update(msg)
	if do != nil {
		do()
	}
	return next.(screen)
}

func press(t *testing.T, s screen, keys ...string) screen {
	t.Helper()
	for _, key := range keys {
		msg := tea.KeyPressMsg{Text: key}
		switch key {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "down":
			msg = tea.KeyPressMsg{Code: tea.KeyDown}
		}
		s = send(t, s, msg)
	}
	return s
}

// The rate moves as a ghost, that nobody but the screen knows until Enter; u takes it back.
func TestARateIsAGhostUntilEnter(t *testing.T) {
	t.Parallel()
	s, a := shown(t, false)
	s = press(t, s, "down", "+", "+", "-")
	if want := "reports: rate 10/s -> 11/s   Enter sets it"; !strings.Contains(s.draw(), want) {
		t.Errorf("no %q in\n%s", want, s.draw())
	}
	s = press(t, s, "esc", "enter")
	for _, did := range a.log {
		if strings.Contains(did, "reports rate") {
			t.Errorf("it was set: %v", a.log)
		}
	}
	press(t, s, "+", "enter", "u", "u", "p")
	got := strings.Join(a.log, ", ")
	want := "reports rate 11/s, reports rate 10/s, reports paused on"
	if !strings.HasSuffix(got, want) {
		t.Errorf("%s, want it to end with %s", got, want)
	}
}

// Failed jobs are redriven after a question alone.
func TestARedriveIsAskedFor(t *testing.T) {
	t.Parallel()
	s, a := shown(t, false)
	four := failedMsg{Backend: "exports", Jobs: 4, Token: "7f3a"}
	s = send(t, press(t, s, "r"), four)
	if want := "redrive 4 failed jobs of exports? y/n"; !strings.Contains(s.draw(), want) {
		t.Errorf("no %q in\n%s", want, s.draw())
	}
	s = press(t, s, "n")
	if got := strings.Join(a.log, ", "); got != "failed exports" {
		t.Errorf("after n: %s", got)
	}
	press(t, send(t, press(t, s, "r"), four), "y")
	const want = "failed exports, failed exports, redrive exports 7f3a"
	if got := strings.Join(a.log, ", "); got != want {
		t.Errorf("after y: %s", got)
	}
}

// The screen has a row for each backend and the plot of the chosen one, within the terminal's size,
// whatever that is and whatever a backend is called.
func TestTheScreenFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, ascii := range []bool{false, true} {
		s, _ := shown(t, ascii)
		s = send(t, s, stateMsg{at: time.Date(2026, 11, 30, 16, 0, 3, 0, time.UTC),
			backends: []api.Backend{aBackend("ex\x1b[2Jports", "2/s", 0, 0),
				aBackend("reports", "10/s", 160, 32)}})
		s = press(t, s, "down")
		for _, want := range []string{"> reports", "5/10", "10/s", "area: calls begun"} {
			if !strings.Contains(s.draw(), want) {
				t.Errorf("no %q in\n%s", want, s.draw())
			}
		}
		for _, size := range [][2]int{{100, 20}, {40, 12}, {200, 60}, {0, 0}, {80, 24}} {
			s := send(t, s, tea.WindowSizeMsg{Width: size[0], Height: size[1]})
			for _, s := range []screen{s, press(t, s, "?"), send(t, s, paneMsg{"\x1b[2J"})} {
				drawn := strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "").Replace(s.draw())
				lines := strings.Split(drawn, "\n")
				if len(lines) != max(size[1], 12) || strings.Contains(drawn, "\x1b") {
					t.Errorf("%v: %d lines\n%q", size, len(lines), drawn)
				}
				for _, line := range lines {
					if utf8.RuneCountInString(line) > max(size[0], 40) {
						t.Errorf("%v: %q", size, line)
					}
				}
				if ascii && strings.ContainsAny(drawn, "█░▁⠀⡇") {
					t.Errorf("it isn't ASCII:\n%s", drawn)
				}
			}
		}
	}
}

// Rates are those between two looks; a counter that begins anew is no negative rate.
func TestRatesAreDifferences(t *testing.T) {
	t.Parallel()
	s, _ := shown(t, false)
	n := s.history["reports"][2]
	if n.in != 40 || n.out != 8 || n.first {
		t.Errorf("%+v", n)
	}
	n = n.next(n.at.Add(time.Second), aBackend("reports", "10/s", 0, 0))
	if n.in != 0 || n.out != 0 {
		t.Errorf("%+v", n)
	}
}

// What the server doesn't answer is said, and the figures stay.
func TestALostServerIsNamed(t *testing.T) {
	t.Parallel()
	s, _ := shown(t, false)
	s = send(t, s, stateMsg{err: "no server answers"})
	d := s.draw()
	if !strings.Contains(d, "no server answers") || !strings.Contains(d, "> exports") {
		t.Error(d)
	}
}

// A step is about a tenth, to a number that a person would write, and never to 0.
func TestStepsOfARate(t *testing.T) {
	t.Parallel()
	for from, want := range map[string][2]string{
		"10/s": {"11/s", "9.5/s"}, "2/s": {"2.2/s", "1.9/s"}, "0.1/s": {"0.11/s", "0.095/s"},
		"60/m": {"65/m", "55/m"}, "100000/s": {"110000/s", "95000/s"}, "3.3/s": {"3.6/s", "3/s"},
	} {
		up, ok := step(from, true)
		down, fine := step(from, false)
		if !ok || !fine || up != want[0] || down != want[1] {
			t.Errorf("%s: %s, %s, want %v", from, up, down, want)
		}
	}
	if _, ok := step("unlimited", true); ok {
		t.Error("unlimited has a step")
	}
}
