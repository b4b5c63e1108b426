package testforebay

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ofEach runs a test of each contract.
func ofEach(t *testing.T, test func(*testing.T, *document)) {
	t.Parallel()
	all, err := specs()
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range all {
		t.Run(name, func(t *testing.T) { test(t, d) })
	}
}

// What both contracts describe, they describe alike.
func TestTheContractsAgree(t *testing.T) {
	t.Parallel()
	all, err := specs()
	if err != nil {
		t.Fatal(err)
	}
	public, admin := all["openapi.yaml"], all["admin.yaml"]
	both := 0
	for _, kind := range []string{"paths", "components/parameters", "components/headers",
		"components/responses", "components/schemas", "components/examples"} {
		for name, here := range public.object(kind) {
			there, shared := admin.object(kind)[name]
			if !shared {
				continue
			}
			both++
			if !reflect.DeepEqual(here, there) {
				t.Errorf("%s/%s differs between the contracts", kind, name)
			}
		}
	}
	if both < 10 {
		t.Errorf("only %d parts are in both", both)
	}
}

// contents are the pointers of all JSON contents, of requests and of answers, that have a schema.
func (d *document) contents() (found []string) {
	var walk func(pointer string, value any)
	walk = func(pointer string, value any) {
		m, ok := value.(map[string]any)
		if !ok {
			return
		}
		for kind := range d.object(pointer + "/content") {
			if strings.HasSuffix(kind, "json") &&
				d.object(pointer+"/content/"+escape(kind)+"/schema") != nil {
				found = append(found, pointer+"/content/"+escape(kind))
			}
		}
		for name, inner := range m {
			walk(strings.TrimPrefix(pointer+"/"+escape(name), "/"), inner)
		}
	}
	walk("", d.root)
	return found
}

// example holds one example of a content against its schema.
func (d *document) example(content, name string) error {
	example := d.object(content + "/examples/" + escape(name))
	schema, err := d.schema(content + "/schema")
	if err != nil {
		return err
	}
	return schema.Validate(example["value"])
}

// keywords of JSON Schema and of OpenAPI's objects that the document uses. Anything else is a slip,
// such as a sentence that YAML cut at its comma.
var keywords = map[bool][]string{
	true: { // schemas
		"$ref", "type", "description", "properties", "required", "items", "enum", "const",
		"pattern", "format", "default", "example", "examples",
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
		"minItems", "maxItems", "uniqueItems",
		"additionalProperties", "minProperties", "maxProperties", "propertyNames", "oneOf", "anyOf",
		"allOf", "not", "deprecated", "title",
		"contentMediaType", "contentEncoding", "if", "then", "else", "readOnly",
		"patternProperties", "dependentRequired", "unevaluatedProperties",
	},
	false: { // operations, parameters, headers, responses, media types
		"$ref", "name", "in", "required", "description", "summary", "schema", "example", "examples",
		"headers", "content", "links", "responses",
		"parameters", "requestBody", "operationId", "tags", "security", "deprecated", "callbacks",
		"servers", "style", "explode", "value",
		"get", "put", "post", "delete", "patch", "webhooks", "externalDocs",
	},
}

// wholeSentences ends like a sentence, or a code block.
var wholeSentences = regexp.MustCompile("[.?:`][)`\n ]*$")

// N01: nothing stands in the document that means nothing there, and each description is whole
// sentences.
func TestTheContractHasNoStrayKeys(t *testing.T) { ofEach(t, theContractHasNoStrayKeys) }

func theContractHasNoStrayKeys(t *testing.T, d *document) {
	known := func(where string, m map[string]any, schema bool) {
		for key, value := range m {
			if !slices.Contains(keywords[schema], key) {
				t.Errorf("%s: %q means nothing there", where, key)
			}
			if text, ok := value.(string); ok && key == "description" &&
				!wholeSentences.MatchString(text) {
				t.Errorf("%s: the description isn't whole: %q", where, text)
			}
		}
	}
	var schema func(where string, value any)
	schema = func(where string, value any) {
		m, ok := value.(map[string]any)
		if !ok {
			return // true, false
		}
		known(where, m, true)
		for _, key := range []string{"properties", "patternProperties"} {
			named, _ := m[key].(map[string]any)
			for name, inner := range named {
				schema(where+"/"+key+"/"+name, inner)
			}
		}
		for _, key := range []string{"items", "additionalProperties", "propertyNames", "not", "if",
			"then", "else"} {
			schema(where+"/"+key, m[key])
		}
		for _, key := range []string{"oneOf", "anyOf", "allOf"} {
			list, _ := m[key].([]any)
			for _, inner := range list {
				schema(where+"/"+key, inner)
			}
		}
	}
	var object func(where string, value any)
	object = func(where string, value any) {
		m, ok := value.(map[string]any)
		if !ok {
			return
		}
		known(where, m, false)
		schema(where+"/schema", m["schema"])
		object(where+"/requestBody", m["requestBody"])
		for _, key := range []string{"headers", "content", "responses"} {
			named, _ := m[key].(map[string]any)
			for name, inner := range named {
				object(where+"/"+key+"/"+name, inner)
			}
		}
		list, _ := m["parameters"].([]any)
		for _, inner := range list {
			object(where+"/parameters", inner)
		}
	}
	for path, item := range d.object("paths") {
		for method, operation := range item.(map[string]any) {
			if method != "parameters" {
				object(method+" "+path, operation)
			}
		}
	}
	for name, inner := range d.object("components/schemas") {
		schema("schema "+name, inner)
	}
	for _, kind := range []string{"headers", "parameters", "responses", "requestBodies"} {
		for name, inner := range d.object("components/" + kind) {
			object(kind+" "+name, inner)
		}
	}
}

// N04: no two fields of an answer are one component: ogen makes a method of each component, and two
// of one name don't build.
func TestFieldsOfAnAnswerAreComponentsOfTheirOwn(t *testing.T) {
	ofEach(t, fieldsOfAnAnswerAreComponentsOfTheirOwn)
}

func fieldsOfAnAnswerAreComponentsOfTheirOwn(t *testing.T, d *document) {
	var walk func(where string, value any)
	walk = func(where string, value any) {
		m, _ := value.(map[string]any)
		for key, inner := range m {
			walk(where+"/"+key, inner)
		}
		headers, _ := m["headers"].(map[string]any)
		by := map[any]string{}
		for name, header := range headers {
			ref := header.(map[string]any)["$ref"]
			if other := by[ref]; ref != nil && other != "" {
				t.Errorf("%s: %s and %s are one component, %v", where, name, other, ref)
			}
			by[ref] = name
		}
	}
	for _, of := range []string{"paths", "components/responses"} {
		for name, inner := range d.object(of) {
			walk(name, inner)
		}
	}
}

// The document itself: every reference leads somewhere, every schema compiles, every example is as
// its schema says, every operation has a name of its own, describes each answer, and ends in a
// default.
func TestTheContractIsSound(t *testing.T) { ofEach(t, theContractIsSound) }

func theContractIsSound(t *testing.T, d *document) {
	if version, _ := d.root["openapi"].(string); !strings.HasPrefix(version, "3.1.") {
		t.Errorf("openapi: %q", version)
	}
	var walk func(pointer string, value any)
	walk = func(pointer string, value any) {
		switch v := value.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if _, _, err := d.at(strings.TrimPrefix(ref, "#/")); err != nil {
					t.Errorf("%s: %v", pointer, err)
				}
			}
			for name, inner := range v {
				walk(pointer+"/"+escape(name), inner)
				if name == "schema" {
					if _, err := d.schema(pointer + "/schema"); err != nil {
						t.Errorf("%s/schema: %v", pointer, err)
					}
				}
			}
		case []any:
			for i, inner := range v {
				walk(pointer+"/"+strconv.Itoa(i), inner)
			}
		}
	}
	walk("", d.root)
	for name := range d.object("components/schemas") {
		if _, err := d.schema("components/schemas/" + escape(name)); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	examples := 0
	for _, pointer := range d.contents() {
		for name := range d.object(pointer + "/examples") {
			examples++
			if err := d.example(pointer, name); err != nil {
				t.Errorf("%s: example %s: %v", pointer, name, err)
			}
		}
	}
	if examples < 5 {
		t.Errorf("only %d examples", examples)
	}
	names := map[any]string{}
	for path, item := range d.object("paths") {
		for method, operation := range item.(map[string]any) {
			o, ok := operation.(map[string]any)
			if !ok || o["responses"] == nil {
				continue
			}
			call := method + " " + path
			if id := o["operationId"]; id == nil || names[id] != "" {
				t.Errorf("%s: operationId %v is missing or taken by %s", call, id, names[id])
			} else {
				names[id] = call
			}
			pointer := "paths/" + escape(path) + "/" + method + "/responses"
			for status := range d.object(pointer) {
				if d.object(pointer + "/" + status)["description"] == nil {
					t.Errorf("%s → %s has no description", call, status)
				}
			}
			if d.object(pointer+"/default") == nil {
				t.Errorf("%s has no default response", call)
			}
		}
	}
	if len(names) < 10 {
		t.Errorf("only %d operations are described", len(names))
	}
}
