package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// curls NAME
//
// sends every request whose curl command a process has printed, as a user who tries them would. It
// prints a line for each: method, URL, status. JOB_ID in a command stands for the job of the last
// answer with one.
func curlsCommand(s *story, args []string) error {
	if len(args) != 1 || s.processes[args[0]] == nil {
		return errors.New("usage: curls NAME")
	}
	p := s.processes[args[0]]
	said := string(p.out.sinceMark()) + string(p.log.sinceMark())
	job := "JOB_ID"
	for line := range strings.Lines(said) {
		line = strings.ReplaceAll(strings.TrimSpace(line), "JOB_ID", job)
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		r, err := parseCurl(line)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		got, err := s.send(r, 0)
		for n := 0; err == nil && got.status == http.StatusServiceUnavailable && n < 5; n++ {
			// The embedded Redis is slow on a machine that is short of CPU. A user would try again.
			time.Sleep(time.Second)
			got, err = s.send(r, 0)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if id, err := got.pointer("/job_id"); err == nil {
			job = id
		}
		fmt.Fprintln(s.ts.Stdout(), r.method, r.urls[0], got.status)
	}
	return nil
}

// parseCurl parses a curl command with the options that the service's own hints use.
func parseCurl(line string) (request, error) {
	words, err := shellWords(line)
	if err != nil {
		return request{}, err
	}
	r := request{header: http.Header{}}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		word := words[0]
		takes := word == "-H" || word == "-d" || word == "-X" || word == "-o"
		if takes && len(words) == 1 {
			return request{}, fmt.Errorf("%s needs a value", word)
		}
		switch {
		case takes:
			words = words[1:]
			switch value := words[0]; word {
			case "-H":
				name, text, _ := strings.Cut(value, ":")
				r.header.Add(name, strings.TrimSpace(text))
			case "-d":
				r.body = value
			case "-X":
				r.method = value
			}
		case strings.HasPrefix(word, "-"):
			if strings.Trim(word, "-sSifN") != "" {
				return request{}, fmt.Errorf("option %s isn't known here", word)
			}
		case !strings.Contains(word, "://"):
			r.urls = append(r.urls, "http://"+word)
		default:
			r.urls = append(r.urls, word)
		}
	}
	if len(r.urls) != 1 {
		return request{}, fmt.Errorf("%d URLs", len(r.urls))
	}
	if r.method == "" {
		r.method = http.MethodGet
		if r.body != "" {
			r.method = http.MethodPost
		}
	}
	// The default of curl.
	if r.body != "" && r.header.Get("Content-Type") == "" {
		r.header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r, nil
}

// shellWords splits a line of words and quotes as a shell does.
func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quote := false, rune(0)
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && c == ' ':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		case quote == 0 && strings.ContainsRune("|&;<>$`\\", c):
			return nil, fmt.Errorf("%q needs a shell", c)
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote isn't closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
