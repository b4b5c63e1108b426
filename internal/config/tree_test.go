package config

import (
	"encoding"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/webhook"
)

// leaf is one scalar of a YAML file.
type leaf struct {
	path string // as errors have it
	key  string // with <name> and [] for names and places in lists
	node *yaml.Node
	kind reflect.Type // in Config
}

// leaves finds every scalar of a tree that is a valid config, and its type.
func leaves(n *yaml.Node, t reflect.Type, path, key string) []leaf {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var all []leaf
	switch {
	case n.Kind == yaml.ScalarNode, t == reflect.TypeFor[strictyaml.JSON]():
		return []leaf{{path, key, n, t}}
	case t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			all = append(all, leaves(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), key+"[]")...)
		}
		if len(n.Content) == 0 {
			all = append(all, leaf{path, key + "[]", n, t})
		}
	case t.Kind() == reflect.Map:
		for i := 0; i < len(n.Content); i += 2 {
			all = append(all, leaves(n.Content[i+1], t.Elem(),
				strictyaml.Join(path, n.Content[i].Value), key+".<name>")...)
		}
	default:
		for i := 0; i < len(n.Content); i += 2 {
			f, _ := t.FieldByNameFunc(func(name string) bool {
				f, _ := t.FieldByName(name)
				return f.Tag.Get("key") == n.Content[i].Value
			})
			below := strings.TrimPrefix(key+"."+n.Content[i].Value, ".")
			all = append(all, leaves(n.Content[i+1], f.Type,
				strictyaml.Join(path, n.Content[i].Value), below)...)
		}
	}
	return all
}

// tree parses a file for a test to change, and finds its scalars.
func tree(t *testing.T, file string) (*yaml.Node, []leaf) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	root := document.Content[0]
	return root, leaves(root, reflect.TypeFor[Config](), "", "")
}

// build is the verdict on a tree.
func build(file string, root *yaml.Node, lookup func(string) (string, bool), rules Rules) (*Config, []Warning, error) {
	text, err := yaml.Marshal(root)
	if err != nil {
		return nil, nil, err
	}
	return read(file, text, lookup, rules)
}

// expand is text with its variables replaced.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var file struct {
		Value string `key:"value"`
	}
	r, err := strictyaml.Read("f", fmt.Appendf(nil, "value: %q", text), lookup, &file)
	if err == nil {
		err = r.Err()
	}
	return file.Value, err
}

// buildWith is the verdict on a tree whose scalar n says text instead.
func buildWith(root, n *yaml.Node, text, variable, value string) ([]Warning, error) {
	was := *n
	defer func() { *n = was }()
	*n = yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Tag: "!!str", Value: text,
		Line: was.Line}
	_, warnings, err := build("f", root, func(name string) (string, bool) {
		if name == variable {
			return value, true
		}
		return env(name)
	}, Rules{})
	return warnings, err
}

// isValue reports whether a type has no keys of its own.
func isValue(t reflect.Type) bool {
	return t.Kind() != reflect.Struct ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// schema lists every key that Config knows, in the form of leaf.key.
func schema(t reflect.Type, key string) []string {
	switch {
	case t.Kind() == reflect.Slice:
		return schema(t.Elem(), key+"[]")
	case t.Kind() == reflect.Map:
		return schema(t.Elem(), key+".<name>")
	case isValue(t):
		return []string{key}
	}
	var all []string
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			continue // its fields are the struct's own; or it is no key
		}
		if name := f.Tag.Get("key"); name != "" {
			all = append(all, schema(f.Type, strings.TrimPrefix(key+"."+name, "."))...)
		} else {
			all = append(all, key) // the struct may be one value as well
		}
	}
	return all
}

func TestEveryKeyIsNamedAndEveryMapAndListHasABound(t *testing.T) {
	t.Parallel()
	var walk func(reflect.Type)
	walk = func(s reflect.Type) {
		for _, f := range reflect.VisibleFields(s) {
			if f.Anonymous || !f.IsExported() {
				continue
			}
			below := f.Type
			if below.Kind() == reflect.Map || below.Kind() == reflect.Slice {
				if most, _ := strconv.Atoi(f.Tag.Get("max")); most < 1 {
					t.Errorf("%v.%s has no bound", s, f.Name)
				}
				below = below.Elem()
			}
			if s == reflect.TypeFor[Cost]() && f.Name == "Fixed" || s == reflect.TypeFor[Step]() &&
				f.Name == "Word" {
				continue // stands for the whole
			}
			if !regexp.MustCompile(`^[a-z0-9_]+$`).MatchString(f.Tag.Get("key")) {
				t.Errorf("%v.%s has no key", s, f.Name)
			}
			if !isValue(below) {
				walk(below)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
}

func TestListsLongerThanTheirBoundAreRefused(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal, "path: /render",
		"path: /render, limits: ["+strings.Repeat("{}, ", 21)+"]", 1)
	if _, _, err := load(text); err == nil ||
		!strings.Contains(err.Error(), "operations.report.limits: has 21 entries; at most 20 are "+
			"allowed") {
		t.Errorf("got %v", err)
	}
	text = strings.Replace(minimal, "5/s}", "5/s}, headers: {"+strings.Repeat("X: x, ", 51)+"}", 1)
	if _, _, err := load(text); err == nil ||
		!strings.Contains(err.Error(), "backends.reports.headers: has 51 entries; at most 50 are "+
			"allowed") {
		t.Errorf("got %v", err)
	}
}

// C120: no duration is ever read from a bare number, for any key and from any source.
func TestEveryDurationNeedsAUnit(t *testing.T) {
	t.Parallel()
	root, all := tree(t, "testdata/working_full.yaml")
	durations := map[string]bool{}
	for _, l := range all {
		if l.kind != reflect.TypeFor[time.Duration]() && l.kind != reflect.TypeFor[Window]() {
			continue
		}
		durations[l.key] = true
		for _, bad := range []string{"30", "0", "10", "1.5", "-5s", "+5s", "", " ", "5 s", "1e3s",
			"five", "5S", "1d12", "infs", "0x5s", "5s "} {
			for _, text := range []string{bad, "${BAD}"} {
				if _, err := buildWith(root, l.node, text, "BAD", bad); err == nil ||
					!strings.Contains(err.Error(), l.path+": ") {
					t.Errorf("%s: %q as %q: got %v", l.path, bad, text, err)
				}
			}
		}
	}
	want := []string{}
	for _, key := range schema(reflect.TypeFor[Config](), "") {
		if strings.HasSuffix(key, "window") || strings.HasSuffix(key, "timeout") ||
			strings.HasPrefix(key, "shutdown") ||
			strings.HasSuffix(key, "max_wait") || strings.HasSuffix(key, "max_age") ||
			strings.HasSuffix(key, "retry.base") ||
			strings.HasSuffix(key, "retry.cap") || strings.HasSuffix(key, "stale_for") ||
			strings.HasSuffix(key, "keep_result") ||
			strings.HasSuffix(key, "grace.period") || strings.HasSuffix(key, "sync.every") ||
			strings.HasSuffix(key, "keep_failed") ||
			strings.HasSuffix(key, "fresh_for") || strings.HasSuffix(key, "schedule[]") {
			want = append(want, key)
		}
	}
	if got := slices.Sorted(maps.Keys(durations)); !slices.Equal(got,
		slices.Sorted(slices.Values(want))) {
		t.Errorf("tried %v, want %v", got, want)
	}
}

// A value from the environment is the text of one value, and no message shows it.
func TestNoMessageShowsAValueOfTheEnvironment(t *testing.T) {
	t.Parallel()
	root, all := tree(t, "testdata/working_full.yaml")
	for _, l := range all {
		if l.node.Kind != yaml.ScalarNode {
			continue
		}
		for _, canary := range []string{"4242424242424", "-424242", "canary",
			"http://canary@canary/?canary#canary", "x\ncanary: {", "424242s",
			"canary/s", "::ffff:42.42.42.42/104", "42.42.42.42/8", "${CANARY}canary"} {
			warnings, err := buildWith(root, l.node, "${CANARY}", "CANARY", canary)
			said := lines(warnings)
			if err != nil {
				said += err.Error()
			}
			said = strings.ReplaceAll(said, "${CANARY}", "")
			if strings.Contains(said, "canary") || strings.Contains(said, "4242") ||
				strings.Contains(said, "42.42") {
				t.Errorf("%s: with %q the messages are:\n%s", l.path, canary, said)
			}
		}
	}
}

// Values from the environment are shown as in the file, for every key and every value.
func TestDescribeShowsNoValueOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"testdata/working_full.yaml", switchedOn(t)} {
		root, all := tree(t, file)
		for _, l := range all {
			if l.node.Kind != yaml.ScalarNode {
				continue
			}
			was, taken := *l.node, 0
			values := []string{was.Value}
			if l.kind.Kind() == reflect.String {
				values = append(values, "/canary", "canary", "canary:8080",
					"redis://:canary@canary/0?canary=canary", "https://canary.example/canary")
			}
			for _, value := range values {
				*l.node = yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle,
					Tag: "!!str", Value: "${CANARY}", Line: was.Line}
				c, _, err := build("f", root, func(name string) (string, bool) {
					if name == "CANARY" {
						expanded, err := expand(value, sampleEnv)
						if err != nil {
							expanded, err = expand(value, env)
						}
						return expanded, err == nil
					}
					if v, ok := env(name); ok {
						return v, true
					}
					return sampleEnv(name)
				}, Rules{})
				*l.node = was
				if err != nil {
					continue
				}
				taken++
				shown := c.Describe()
				if hidden := l.kind == reflect.TypeFor[strictyaml.Secret]() ||
					l.kind == reflect.TypeFor[webhook.Secret](); !hidden &&
					!strings.Contains(shown, "${CANARY}") {
					t.Errorf("%s from the environment isn't shown as ${CANARY}:\n%s", l.path, shown)
				}
				if strings.Contains(strings.ReplaceAll(shown, "${CANARY}", ""), "canary") {
					t.Errorf("%s: the environment's %q is shown:\n%s", l.path, value, shown)
				}
			}
			if taken == 0 && l.kind != reflect.TypeFor[strictyaml.JSON]() {
				t.Errorf("%s can't come from the environment", l.path)
			}
		}
	}
}

// C121: no key is dropped silently, wherever it stands.
func TestAnUnknownKeyIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	var holders func(n *yaml.Node, t reflect.Type) []*yaml.Node
	holders = func(n *yaml.Node, t reflect.Type) (all []*yaml.Node) {
		if n.Kind == yaml.AliasNode {
			return nil
		}
		switch t.Kind() {
		case reflect.Slice:
			for _, item := range n.Content {
				all = append(all, holders(item, t.Elem())...)
			}
		case reflect.Map:
			for i := 0; i < len(n.Content); i += 2 {
				all = append(all, holders(n.Content[i+1], t.Elem())...)
			}
		case reflect.Struct:
			if n.Kind == yaml.MappingNode {
				all = append(all, n)
			}
			for _, f := range reflect.VisibleFields(t) {
				for i := 0; i+1 < len(n.Content); i += 2 {
					if n.Content[i].Value == f.Tag.Get("key") {
						all = append(all, holders(n.Content[i+1], f.Type)...)
					}
				}
			}
		}
		return all
	}
	root, _ := tree(t, "testdata/working_full.yaml")
	places := holders(root, reflect.TypeFor[Config]())
	if len(places) < 20 {
		t.Fatalf("only %d places were found", len(places))
	}
	for _, at := range places {
		was := at.Content
		at.Content = append(slices.Clone(was), &yaml.Node{Kind: yaml.ScalarNode, Value: "Limit"}, &yaml.Node{Kind: yaml.ScalarNode, Value: "1"})
		_, _, err := build("f", root, env, Rules{})
		at.Content = was
		if err == nil || !strings.Contains(err.Error(), "Limit: unknown key; ") {
			t.Errorf("beside %s: got %v", at.Content[0].Value, err)
		}
	}
}

func sampleEnv(name string) (string, bool) {
	if strings.HasPrefix(name, "REDIS_") || name == "SENTINEL_PASSWORD" {
		return `a/b?c#d@e%f:"`, true
	}
	if name == "ACME_WEBHOOK_SECRET" {
		return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true
	}
	return "0123456789abcdef", name == "FOREBAY_ADMIN_TOKEN" || name == "REPORTS_TOKEN"
}

const sample = "../../deploy/forebay.example.yaml"

// switchedOn is the sample with all that it shows switched off.
func switchedOn(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^#:`).ReplaceAllString(string(text), "")
	// A header of theirs needs trusted proxies, which by default nobody has.
	all = strings.Replace(all, "trusted_proxies: []", "trusted_proxies: [10.0.0.0/8]", 1)
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheSampleIsAWorkingConfigWithoutWarnings(t *testing.T) {
	t.Parallel()
	for _, file := range []string{sample, switchedOn(t)} {
		c, warnings, err := Load(file, sampleEnv, Rules{})
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s\n%v", lines(warnings), err)
		}
		if c.Admin.Token != "0123456789abcdef" ||
			c.Backends["reports"].Headers["Authorization"] != "Bearer 0123456789abcdef" {
			t.Error("the sample's secrets don't come from the environment")
		}
		if on := file != sample; on != (c.Region.Name != "") ||
			on != (c.Identity.ClientsFile != "") {
			t.Errorf("%s: switched on: %v", file, !on)
		}
	}
}

// A limit's keys are the same wherever it is listed, and so are those of a Redis's login; it is
// enough to show them once.
var anyList = regexp.MustCompile(`^(identity\.clients\[\]|tiers\.<name>|operations\.<name>)` +
	`\.(limits|reads)\[\]`)

func shownOnce(key string) string {
	key = anyList.ReplaceAllString(key, "limits[]")
	if rest, of := strings.CutPrefix(key, "region.sync."); of && rest != "redis" &&
		rest != "every" {
		return "redis." + rest
	}
	return key
}

func TestTheSampleShowsEveryKey(t *testing.T) {
	t.Parallel()
	_, all := tree(t, switchedOn(t))
	shown := map[string]bool{}
	for _, l := range all {
		shown[shownOnce(l.key)] = true
	}
	known := map[string]bool{}
	for _, key := range schema(reflect.TypeFor[Config](), "") {
		key = shownOnce(key)
		if known[key] = true; !shown[key] {
			t.Errorf("%s is missing", key)
		}
	}
	for key := range shown {
		if !known[key] {
			t.Errorf("%s is no key of the config", key)
		}
	}
}

// Where the sample shows a key that has a default, it shows the default: dropping the key from
// the sample changes nothing.
func TestTheSampleShowsTheDefaults(t *testing.T) {
	t.Parallel()
	withDefault := []string{
		"http.listen", "http.max_body", "http.max_buffered", "http.trusted_proxies",
		"http.client_ip_header", "http.ipv6_prefix", "http.legacy_rate_limit_headers",
		"admin.listen", "redis.on_failure", "check.on_failure", "check.processes",
		"worker.embedded", "shutdown", "shutdown_delay", "tiers.free.weight", "tiers.pro.weight",
		"tiers.free.limits[0].per", "tiers.free.limits[0].enforce", "tiers.free.reads",
		"region.sync.every",
		"callbacks.http", "callbacks.timeout", "callbacks.schedule",
		"operations.export.cache.refresh", "operations.export.coalesce",
		"operations.export.degrade.when.below",
		"backends.reports.drain.burst", "backends.reports.drain.concurrency",
		"backends.reports.line", "backends.reports.timeout", "backends.reports.retry",
		"backends.reports.max_age", "backends.reports.feedback", "backends.reports.keep_failed",
		"operations.monthly-report.method", "operations.monthly-report.cache.share",
		"operations.monthly-report.on_overload",
		"operations.monthly-report.cost", "operations.export.cost.default",
		"operations.monthly-report.keep_result", "operations.monthly-report.max_result",
		"operations.monthly-report.limits[0].per",
	}
	on := switchedOn(t)
	for _, path := range withDefault {
		file := on
		if path == "http.trusted_proxies" {
			file = sample
		}
		whole, _, err := Load(file, sampleEnv, Rules{})
		if err != nil {
			t.Fatal(err)
		}
		root, _ := tree(t, file)
		if !drop(root, path) {
			t.Errorf("%s is not in the sample", path)
			continue
		}
		without, _, err := build(file, root, sampleEnv, Rules{})
		if err != nil {
			t.Errorf("without %s: %v", path, err)
		} else if whole.Describe() != without.Describe() {
			t.Errorf("%s is not the default", path)
		}
	}
	// The list above is complete: every other key is required, names something or switches it on.
	root, all := tree(t, on)
	for _, path := range withDefault {
		drop(root, path)
	}
	rest := map[string]bool{}
	for _, l := range leaves(root, reflect.TypeFor[Config](), "", "") {
		rest[l.key] = true
	}
	for _, l := range all {
		switch anyList.ReplaceAllString(l.key, "limits[]") {
		case "admin.token", "http.trusted_proxies[]", "redis.url", "redis.username",
			"redis.password", "redis.sentinel_username",
			"redis.sentinel_password", "redis.tls.ca", "redis.tls.cert", "redis.tls.key",
			"redis.tls.server_name", "region.name", "region.share", "region.sync.redis",
			"check.method_header", "identity.anonymous", "identity.country_header",
			"identity.country_database", "identity.clients_file",
			"identity.clients[].name", "identity.clients[].tier", "identity.clients[].key_sha256[]",
			"identity.clients[].weight",
			"tiers.<name>.max_stored", "tiers.<name>.grace.period", "tiers.<name>.grace.factor",
			"limits[].name", "limits[].per", "limits[].when.tier[]", "limits[].when.operation[]",
			"limits[].when.country[]",
			"limits[].algorithm", "limits[].limit", "limits[].window", "limits[].burst",
			"limits[].enforce", "limits[].cost.bytes",
			"backends.<name>.url", "backends.<name>.drain.rate", "backends.<name>.headers.<name>",
			"operations.<name>.backend", "operations.<name>.path", "operations.<name>.tiers[]",
			"operations.<name>.cache.stale_for",
			"operations.<name>.cost.from", "operations.<name>.cost.max",
			"operations.<name>.on_failure",
			"http.max_connections", "http.max_connections_per_address",
			"callbacks.allow[]", "callbacks.ports[]", "identity.clients[].callback.url",
			"identity.clients[].callback.secrets[]",
			"operations.<name>.cache.fresh_for", "operations.<name>.cache.key[]",
			"operations.<name>.degrade.when.backend",
			"operations.<name>.on_overload[]", "operations.<name>.on_overload[].operation",
			"operations.<name>.on_overload[].body":
		default:
			if rest[l.key] {
				t.Errorf("%s has a default or hasn't: the test doesn't know", l.path)
			}
		}
	}
}

// drop takes a key out of a tree.
func drop(n *yaml.Node, path string) bool {
	name, rest, deeper := strings.Cut(path, ".")
	name, index, inList := strings.Cut(name, "[0]")
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != name {
			continue
		}
		if !deeper {
			n.Content = slices.Delete(n.Content, i, i+2)
			return true
		}
		if inList && index == "" {
			return drop(n.Content[i+1].Content[0], rest)
		}
		return drop(n.Content[i+1], rest)
	}
	return false
}
