package strictyaml

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Read reads the one YAML document of text into the struct that v points to. What the text leaves
// out stays as it is. lookup finds environment variables, as os.LookupEnv does. The report has all
// problems and the place of each key; file names the text in it. If the text isn't YAML at all,
// that is the error, an Errors of one.
func Read(file string, text []byte, lookup func(string) (string, bool), v any) (*Report, error) {
	root, problem := parseYAML(text)
	if problem != nil {
		problem.File = file
		return nil, Errors{*problem}
	}
	r, into := NewReport(file), reflect.ValueOf(v).Elem()
	if root != nil {
		d := decoder{Report: r, lookup: lookup, root: into.Type()}
		d.value(root, into, "", 1, 0)
	}
	return r, nil
}

var yamlLine = regexp.MustCompile(`^line ([0-9]+): `)

// parserError matches errors in which the YAML library counts lines from 0.
var parserError = regexp.MustCompile(`^did not find expected (?:<|node|'-'|key|',')`)

// parseYAML returns the root of the one document in text; nil if it is empty.
func parseYAML(text []byte) (*yaml.Node, *Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, another yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		switch err = decoder.Decode(&another); {
		case errors.Is(err, io.EOF):
			return document.Content[0], nil
		case err == nil:
			return nil, &Problem{Line: another.Line, Text: "a second document begins; keep one " +
				"config in one file"}
		}
	}
	problem := Problem{Text: "isn't YAML: " + err.Error()}
	detail := bytes.TrimPrefix([]byte(err.Error()), []byte("yaml: "))
	if m := yamlLine.FindSubmatch(detail); m != nil {
		problem.Line, _ = strconv.Atoi(string(m[1]))
		detail = detail[len(m[0]):]
		if parserError.Match(detail) {
			problem.Line++
		}
		problem.Text = "isn't YAML: " + string(detail)
	}
	problem.Text += hint(text, problem)
	return nil, &problem
}

var flowVariable = regexp.MustCompile(`[\[{].*\$\{`)

// hint returns the correction for common causes of broken YAML.
func hint(text []byte, p Problem) string {
	lines := bytes.Split(text, []byte("\n"))
	if p.Line < 1 || p.Line > len(lines) {
		return ""
	}
	switch line := lines[p.Line-1]; {
	case bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("\t")):
		return "; indent with spaces, not tabs"
	case flowVariable.Match(line):
		return `; inside [ ] and { } write "${NAME}" in quotes`
	case strings.HasSuffix(p.Text, "expected key") || strings.HasSuffix(p.Text, "'-' indicator"):
		return "; check the indentation from here on"
	}
	return ""
}
