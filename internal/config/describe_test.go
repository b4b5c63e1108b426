package config

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// readBack is the config that Describe's text stands for, with other secrets.
func readBack(t *testing.T, text string) *Config {
	t.Helper()
	text = strings.ReplaceAll(text, `secrets: ["***", "***"]`,
		"secrets: ["+hookSecret+", whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]")
	text = strings.ReplaceAll(text, `"***"`, "0123456789abcdef")
	text = strings.ReplaceAll(text, "***@", "")
	text = regexp.MustCompile(`"([0-9a-f]{8})…"`).ReplaceAllString(text, "${1}"+strings.Repeat("0", 56))
	c, _, err := read("described", []byte(text), env, Rules{})
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return c
}

// C120, C123: what is in effect is shown whole and with units, so well that it can be read back.
func TestDescribeShowsWhatIsInEffect(t *testing.T) {
	t.Parallel()
	for _, file := range testdata(t, "working_*.yaml") {
		c, _, err := Load(file, env, Rules{})
		if err != nil {
			t.Fatal(err)
		}
		again := readBack(t, c.Describe())
		again.Admin.Token, again.Redis.URL = c.Admin.Token, c.Redis.URL
		again.Region.Sync.Redis = c.Region.Sync.Redis
		for n, client := range again.Identity.Clients {
			client.KeySHA256 = c.Identity.Clients[n].KeySHA256
			again.Identity.Clients[n] = client
		}
		for name, b := range again.Backends {
			b.Headers = c.Backends[name].Headers
			again.Backends[name] = b
		}
		if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{}), opaque); diff != "" {
			t.Errorf("%s: what Describe prints is another config (-first +again):\n%s", file, diff)
		}
	}
	c := mustLoad(t, minimal)
	for _, line := range []string{"  max_body: 1MiB", "shutdown: 30s", "      max_wait: 5m",
		"    max_age: 24h", "    feedback: on", "    keep_failed: 7d", "      rate: 5/s",
		"  # no url: embedded, in memory: nothing is kept", "      # no stale_for: no stale " +
			"answer is served", "    # no tiers: every tier may use it",
		"    cost: 1", "  on_failure: degrade", "  on_failure: local",
		"# no region: one region: limits count everything", "    # no grace: new clients have " +
			"the same limits as others"} {
		if !strings.Contains(c.Describe(), line+"\n") {
			t.Errorf("%q is missing in\n%s", line, c.Describe())
		}
	}
}

// C123: the listing shows what a limit does, also if it refuses nothing or is a client's own.
func TestDescribeShowsEveryLimitWithWhatItDoes(t *testing.T) {
	t.Parallel()
	c, _, err := Load("testdata/working_full.yaml", env, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`
  - name: trial
    per: client
    # no when: whatever it is listed for
    algorithm: fixed-window
    limit: 10
    window: 1h
    enforce: false
`, `
  - name: monthly
    per: client
    when:
      tier: [free, pro]
      operation: [report]
      country: [DE, FR]
    algorithm: fixed-window
    limit: 50000
    window: month
    enforce: true
`, `
      weight: 3
      limits:
        - name: per-minute
          per: client
          # no when: whatever it is listed for
          algorithm: sliding-window-counter
          limit: 600
          window: 1m
          enforce: true
          # no cost: a request takes its operation's cost, or one job
        - name: own
          per: tier
          # no when: whatever it is listed for
          algorithm: concurrency
          limit: 3
          enforce: true
          # no cost: a request takes its operation's cost, or one job
`, `
        cost:
          bytes: true
`, `
    # no max_stored: a client's jobs may take any number of bytes
`, `
    max_stored: 64MiB
`, `
    grace:
      period: 7d
      factor: 2.5
`, `
    cost:
      from: /options/pages
      default: 2
      max: 4
`, `
    window: day
`, `
region:
  name: eu
  share: 0.4
  sync:
    redis: "rediss://***@10.1.0.1:6379/1"
    # no tls: servers with TLS are verified against the system's authorities
    every: 500ms
`} {
		if !strings.Contains(c.Describe(), text) {
			t.Errorf("%s is missing in\n%s", text, c.Describe())
		}
	}
}

// A body is shown as the file has it too, down to each text in it.
func TestDescribeShowsNoValueOfTheEnvironmentInABody(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, strings.Replace(minimal, "path: /render",
		`path: /render, on_overload: [{body: {to: "${REPORTS_TOKEN}", of: "$${5}"}}, reject]`, 1))
	if body := c.Operations["report"].OnOverload[0].Body; body != `{"to":"hunter2","of":"${5}"}` {
		t.Fatalf("the body is %s", body)
	}
	if shown := c.Describe(); !strings.Contains(shown,
		`[{body: {"to":"${REPORTS_TOKEN}","of":"$${5}"}}, reject]`) ||
		strings.Contains(shown, "hunter2") {
		t.Errorf("shown is\n%s", shown)
	}
}

// Whatever a file holds, Load says yes with a config that checks again, or no with places.
func FuzzLoad(f *testing.F) {
	for _, file := range []string{"testdata/working_full.yaml", "testdata/busted_shapes.yaml",
		"testdata/busted_secrets.yaml", sample} {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{minimal, "", "---", "- a", "&a [*a]", "tiers: &a {x: *a}",
		"limits: &a [*a]", "? {a: b}\n: c", "\xff", "shutdown: ${", "a: !!binary x", "<<: {}",
		"http: &x\nadmin: *x"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, _, err := read("f", text, env, Rules{})
		if err != nil {
			all, ok := err.(Errors)
			if !ok || len(all) == 0 || err.Error() == "" || c != nil {
				t.Fatalf("got %v, %#v", c, err)
			}
			return
		}
		if _, err := c.Check(); err != nil {
			t.Fatalf("was accepted, and is no more:\n%v", err)
		}
		c.Describe()
	})
}
