package testforebay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/forebay/forebay/api"
)

// contract holds every answer that a test gets against openapi.yaml or admin.yaml. The schemas of
// OpenAPI 3.1 are JSON Schema 2020-12, so a library for those judges bodies and fields; finding the
// one that applies is done here.
type contract struct {
	t    testing.TB
	next http.RoundTripper
}

// document is one of the contracts as JSON values, and its schemas as they are compiled.
type document struct {
	root     map[string]any
	compiler *jsonschema.Compiler

	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema // guarded by mu; by JSON Pointer
}

const documentURL = "urn:openapi.yaml"

// specs are the contracts of the two listeners, by their files' names.
var specs = sync.OnceValues(func() (map[string]*document, error) {
	public, err := parse(api.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	admin, err := parse(api.AdminOpenAPI)
	if err != nil {
		return nil, fmt.Errorf("admin.yaml: %w", err)
	}
	return map[string]*document{"openapi.yaml": public, "admin.yaml": admin}, nil
})

func parse(contract []byte) (*document, error) {
	var tree any
	if err := yaml.Unmarshal(contract, &tree); err != nil {
		return nil, err
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &document{root: root.(map[string]any), compiler: jsonschema.NewCompiler(),
		schemas: map[string]*jsonschema.Schema{}}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource(documentURL, root)
}

// described finds the contract and the operation of a request; "" where none describes it. What
// both listeners have, both describe alike.
func described(method, path string) (*document, string, error) {
	all, err := specs()
	if err != nil {
		return nil, "", err
	}
	for _, d := range all {
		if operation := d.operation(method, path); operation != "" {
			return d, operation, nil
		}
	}
	return nil, "", nil
}

// Described reports whether a file of package api describes a call, by its path or template.
func Described(t testing.TB, file, method, path string) bool {
	t.Helper()
	all, err := specs()
	if err != nil {
		t.Fatal(err)
	}
	return all[file].operation(method, path) != ""
}

// at returns the value at a JSON Pointer, after its references, and the pointer to where it really
// stands.
func (d *document) at(pointer string) (any, string, error) {
	var value any = d.root
	steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, step := range steps {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(v) {
				return nil, "", fmt.Errorf("%s leads nowhere", pointer)
			}
			value = v[n]
		}
		if value == nil {
			return nil, "", fmt.Errorf("%s leads nowhere", pointer)
		}
		if m, ok := value.(map[string]any); ok {
			if ref, ok := m["$ref"].(string); ok {
				return d.at(strings.Join(append([]string{strings.TrimPrefix(ref, "#/")},
					steps[i+1:]...), "/"))
			}
		}
	}
	return value, pointer, nil
}

// object is at for a map; nil where there is none.
func (d *document) object(pointer string) map[string]any {
	value, _, err := d.at(pointer)
	if err != nil {
		return nil
	}
	m, _ := value.(map[string]any)
	return m
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// schema compiles the schema at a pointer, once.
func (d *document) schema(pointer string) (*jsonschema.Schema, error) {
	_, where, err := d.at(pointer)
	if err != nil {
		return nil, err
	}
	where = "/" + strings.TrimPrefix(where, "/")
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[where]; s != nil {
		return s, nil
	}
	// A pointer in a URL's fragment: braces of path templates are escaped there.
	s, err := d.compiler.Compile(documentURL + "#" +
		strings.NewReplacer("{", "%7B", "}", "%7D").Replace(where))
	if err != nil {
		return nil, err
	}
	d.schemas[where] = s
	return s, nil
}

// operation finds the path template and method that a request is one of; "" where the contract
// describes none.
func (d *document) operation(method, path string) string {
	given := strings.Split(path, "/")
	for template := range d.object("paths") {
		parts := strings.Split(template, "/")
		if len(parts) != len(given) {
			continue
		}
		same := true
		for i, part := range parts {
			same = same && (part == given[i] || strings.HasPrefix(part, "{") && given[i] != "")
		}
		pointer := "paths/" + escape(template) + "/" + strings.ToLower(method)
		if same && d.object(pointer) != nil {
			return pointer
		}
	}
	return ""
}

// response finds what the operation says of a status: the status itself, its hundred, or default.
func (d *document) response(operation string, status int) string {
	for _, key := range []string{strconv.Itoa(status), strconv.Itoa(status/100) + "XX", "default"} {
		if pointer := operation + "/responses/" + key; d.object(pointer) != nil {
			return pointer
		}
	}
	return ""
}

// everywhere are fields of HTTP itself, and the one that all answers with a decision have.
var everywhere = []string{"Date", "Content-Length", "Content-Type", "Connection", "Allow",
	"Forebay-Decision"}

// fields holds an answer's header against those that the response describes: all that are required
// are there, nothing else is, and each is as its schema says.
func (d *document) fields(response string, h http.Header) (wrong []string) {
	described := map[string]bool{}
	for name := range d.object(response + "/headers") {
		pointer := response + "/headers/" + escape(name)
		described[http.CanonicalHeaderKey(name)] = true
		values := h.Values(name)
		if len(values) == 0 {
			if d.object(pointer)["required"] == true {
				wrong = append(wrong, name+" is missing")
			}
			continue
		}
		var value any = strings.Join(values, ", ")
		if kind := d.object(pointer + "/schema")["type"]; kind == "integer" || kind == "boolean" {
			value, _ = jsonschema.UnmarshalJSON(strings.NewReader(values[0]))
		}
		schema, err := d.schema(pointer + "/schema")
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
		}
	}
	for name := range h {
		if !described[http.CanonicalHeaderKey(name)] &&
			!slices.Contains(everywhere, http.CanonicalHeaderKey(name)) {
			wrong = append(wrong, name+" isn't described")
		}
	}
	return wrong
}

// body holds an answer's body against the response's content. Bytes of the backend (*/*) may be
// anything.
func (d *document) body(response string, answer *http.Response, body []byte) error {
	content := d.object(response + "/content")
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	switch {
	case content["*/*"] != nil:
		return nil
	case len(content) == 0 && len(body) == 0:
		return nil
	case content[kind] == nil:
		return fmt.Errorf("content type %q isn't one of %v", kind,
			slices.Sorted(maps.Keys(content)))
	case !strings.HasSuffix(kind, "json"):
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	schema, err := d.schema(response + "/content/" + escape(kind) + "/schema")
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (c contract) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	// A stream may last: CheckContract checks its fields.
	if err != nil || answer.Header.Get("Content-Type") == "text/event-stream" {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		return nil, err
	}
	c.check(r, answer, body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

func (c contract) check(r *http.Request, answer *http.Response, body []byte) {
	c.t.Helper()
	if r.Method == http.MethodHead {
		return // as its GET, without the body
	}
	call := r.Method + " " + r.URL.Path
	if answer.StatusCode >= 400 {
		c.checkProblem(call, answer, body)
	}
	d, operation, err := described(r.Method, r.URL.Path)
	if err != nil {
		c.t.Fatal(err)
	}
	if operation == "" {
		// What the contract leaves to every other path and method is a problem.
		if answer.StatusCode < 400 {
			c.t.Errorf("%s: %s, which the contract doesn't describe", call, answer.Status)
		}
		return
	}
	response := d.response(operation, answer.StatusCode)
	if response == "" {
		c.t.Errorf("%s → %d, which its contract doesn't describe", call, answer.StatusCode)
		return
	}
	wrong := d.fields(response, answer.Header)
	if err := d.body(response, answer, body); err != nil {
		wrong = append(wrong, err.Error())
	}
	if len(wrong) > 0 {
		c.t.Errorf("%s → %d isn't as its contract says:\n%s\n%.300s", call, answer.StatusCode,
			strings.Join(wrong, "\n"), body)
	}
}

func (c contract) checkProblem(call string, answer *http.Response, body []byte) {
	c.t.Helper()
	var p api.Problem
	Strictly(c.t, call, body, &p)
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		c.t.Errorf("%s → %d: Content-Type %q, want a problem", call, answer.StatusCode, got)
	}
	if p.Status != answer.StatusCode || p.RequestID != answer.Header.Get(api.HeaderRequestID) ||
		p.Code == "" || p.Title == "" {
		c.t.Errorf("%s → %d with request id %s: problem disagrees: %s", call, answer.StatusCode,
			answer.Header.Get(api.HeaderRequestID), body)
	}
	if strings.ContainsAny(p.Detail, "\n") || strings.Contains(p.Detail, "redis") ||
		strings.Contains(p.Detail, ".go") {
		c.t.Errorf("%s → %d tells what is internal: %s", call, answer.StatusCode, body)
	}
}

// Strictly decodes a body that may have no fields but those of into.
func Strictly(t testing.TB, call string, body []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v in %s", call, err, body)
	}
}

// CheckContract holds an answer to a request against its contract. Answers to the World's Client
// are checked already, except for streams.
func (w *World) CheckContract(r *http.Request, a *http.Response, body []byte) {
	w.Helper()
	contract{t: w}.check(r, a, body)
}

// Unchecked has answers to the World's Client no longer held against the contracts, which takes
// time.
func (w *World) Unchecked() { w.Client.Transport = w.Client.Transport.(contract).next }
