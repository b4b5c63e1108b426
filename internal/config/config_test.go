package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/limits"
	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/webhook"
	"github.com/forebay/forebay/internal/worker"
)

const hookSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// env is the environment of the files in testdata.
func env(name string) (string, bool) {
	v, ok := map[string]string{
		"ADMIN_TOKEN":    "0123456789abcdef",
		"REPORTS_TOKEN":  "hunter2",
		"THUMBNAILS_URL": "http://127.0.0.1:9001",
		"WITH_SECRET":    "http://user:hunter2@127.0.0.1",
		"BIG":            "777777777777",
		"EMPTY":          "",
		"HOOK_SECRET":    hookSecret,
		"BARE_NUMBER":    "30",
		"ONE":            "1",
		"INJECTION":      "5/s, burst: 100}\nshutdown: 1s",
	}[name]
	return v, ok
}

// minimal is the smallest config that is complete. Tests append to it.
const minimal = `
identity: {anonymous: free}
tiers: {free: {}}
backends: {reports: {url: "http://127.0.0.1:9000", drain: {rate: 5/s}}}
operations: {report: {backend: reports, path: /render}}
`

func load(text string) (*Config, []Warning, error) {
	return read("forebay.yaml", []byte(text), env, Rules{})
}

// opaque compares types that hide their parts.
var opaque = cmpopts.EquateComparable(netip.Prefix{}, leaky.Rate{}, webhook.Secret{})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mustLoad(t *testing.T, text string) *Config {
	t.Helper()
	c, _, err := load(text)
	if err != nil {
		t.Fatalf("%v\nin %s", err, text)
	}
	return c
}

// expected is the text file beside a YAML file.
func expected(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}

func lines(problems []Warning) string {
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	return strings.Join(all, "\n")
}

func testdata(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: found %v, %v", pattern, files, err)
	}
	return files
}

// Each busted file has its expected errors beside it. Among them: C16 (busted_limits,
// busted_rates), C120 (busted_units), C121 (busted_misspelt, busted_indentation,
// busted_duplicate_keys, busted_names), C123 (busted_limits).
func TestABustedFileIsRefusedWithPlacesAndMends(t *testing.T) {
	t.Parallel()
	for _, file := range testdata(t, "busted_*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			c, warnings, err := Load(file, env, Rules{})
			if c != nil || warnings != nil || err == nil {
				t.Fatalf("got a config %v and warnings %v beside error %v", c, warnings, err)
			}
			all, ok := err.(Errors)
			if !ok {
				t.Fatalf("the error is a %T, want Errors", err)
			}
			if diff := cmp.Diff(expected(t, file), lines(all)); diff != "" {
				t.Errorf("the errors are not the expected ones (-want +got):\n%s", diff)
			}
			if strings.Contains(lines(all), "hunter2") {
				t.Errorf("the errors show a secret")
			}
		})
	}
}

// Each working file has beside it the warnings that come with it.
func TestAWorkingFileIsAccepted(t *testing.T) {
	t.Parallel()
	for _, file := range testdata(t, "working_*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			_, warnings, err := Load(file, env, Rules{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(expected(t, file), lines(warnings)); diff != "" {
				t.Errorf("the warnings are not the expected ones (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALongListOfErrorsIsCutWhenPrinted(t *testing.T) {
	t.Parallel()
	_, _, err := Load("testdata/busted_many.yaml", env, Rules{})
	got := strings.Split(err.Error(), "\n")
	if all := err.(Errors); len(all) != 25 || len(got) != 21 || got[20] != "and 5 more" ||
		got[19] != all[19].String() {
		t.Errorf("%d errors print as:\n%v", len(all), err)
	}
}

func TestAFileThatCanNotBeReadIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.yaml")
	if _, _, err := Load(missing, env, Rules{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing file: %v", err)
	}
	if _, _, err := Load(dir, env, Rules{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory: %v", err)
	}
	long := filepath.Join(dir, "long.yaml")
	if err := os.WriteFile(long, bytes.Repeat([]byte("#\n"), maxFile/2+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(long, env, Rules{}); err == nil || err.Error() != long+": is longer than 2MiB; a config is not" {
		t.Errorf("a long file: %v", err)
	}
}

// What a file leaves out is as the manual says. Whoever changes a default changes this too.
func TestOneBackendAndOneOperationAreEnough(t *testing.T) {
	t.Parallel()
	want := &Config{
		Deployment: Deployment{
			HTTP: HTTP{Listen: ":8080", MaxBody: 1 << 20, MaxBuffered: 256 << 20,
				ClientIPHeader: "X-Forwarded-For", IPv6Prefix: 64, LegacyRateLimitHeaders: "epoch"},
			Admin:  Admin{Listen: "127.0.0.1:8081"},
			Redis:  Redis{OnFailure: "degrade"},
			Checks: Checks{OnFailure: "local", Processes: 1},
			Worker: Worker{Embedded: true},
		},
		Identity: Identity{Anonymous: "free"},
		Callbacks: webhook.Policy{Timeout: 15 * time.Second,
			Schedule: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute,
				2 * time.Hour,
				5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}},
		Stop: Stop{Shutdown: 30 * time.Second, ShutdownDelay: 5 * time.Second},
		Tiers: map[string]Tier{"free": {Weight: 1,
			Reads: []Limit{{Name: "reads", Per: "client", Algorithm: limits.TokenBucket,
				Limit:  60_000,
				Window: Window(time.Minute), Burst: 10_000, Enforce: true}}}},
		Backends: map[string]Backend{"reports": {
			URL:     "http://127.0.0.1:9000",
			Drain:   leaky.Drain{Rate: must(leaky.ParseRate("5/s")), Burst: 1, Concurrency: 10},
			Line:    leaky.Room{Capacity: 1000, MaxWait: 5 * time.Minute, ClientShare: 1},
			Timeout: 30 * time.Second,
			Retry: Retry{Attempts: 4,
				Retry: worker.Retry{Base: time.Second, Cap: time.Minute,
					On:   []int{408, 425, 500, 502, 504, 507},
					Rest: []int{429, 503, 529}}},
			MaxAge: 24 * time.Hour,

			Feedback:   true,
			KeepFailed: 168 * time.Hour,
		}},
		Operations: map[string]Operation{"report": {
			Call: Call{Backend: "reports", Method: "POST", Path: "/render"}, Cost: Cost{Fixed: 1},
			Cache: Cache{Share: "client"}, OnOverload: []Step{{Word: "stale"}, {Word: "reject"}},
			KeepResult: 24 * time.Hour, MaxResult: 1 << 20,
		}},
	}
	if diff := cmp.Diff(want, mustLoad(t, minimal), cmpopts.IgnoreUnexported(Config{}),
		opaque); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheEmbeddedWorkerIsOffOnlyWithARedisOfItsOwn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                                      true,
		"worker: {embedded: true}\n":            true,
		"redis: {url: \"redis://127.0.0.1\"}\n": false,
		"redis: {url: \"redis://127.0.0.1\"}\nworker: {embedded: false}\n": false,
		"redis: {url: \"redis://127.0.0.1\"}\nworker: {embedded: true}\n":  true,
	} {
		if got := mustLoad(t, minimal+text).Worker.Embedded; got != want {
			t.Errorf("%q: embedded is %v", text, got)
		}
	}
}

func TestTheAdminListenerNeedsATokenWhereOthersCanReachIt(t *testing.T) {
	t.Parallel()
	for listen, alone := range map[string]bool{
		"127.0.0.1:8081": true, "127.1.2.3:8081": true, "[::1]:8081": true, "localhost:8081": true,
		"[::ffff:127.0.0.1]:8081": true,
		":8081":                   false, "0.0.0.0:8081": false, "[::]:8081": false,
		"10.0.0.1:8081":          false,
		"admin.example.com:8081": false,
	} {
		c := mustLoad(t, minimal)
		c.Admin.Listen = listen
		if _, err := c.Check(); (err == nil) != alone {
			t.Errorf("%s without a token: %v", listen, err)
		}
		c.Admin.Token = "0123456789abcdef"
		if _, err := c.Check(); err != nil {
			t.Errorf("%s with a token: %v", listen, err)
		}
	}
}

func TestTheDemoIsAWorkingConfigOnceItsBackendsAreThere(t *testing.T) {
	t.Parallel()
	c := Demo()
	if _, err := c.Check(); err == nil {
		t.Error("a demo without URLs was accepted")
	}
	for name, b := range c.Backends {
		b.URL = "http://127.0.0.1:9000"
		c.Backends[name] = b
	}
	if warnings, err := c.Check(); err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", lines(warnings), err)
	}
	report, thumbnail := c.Operations["report"], c.Operations["thumbnail"]
	if !reflect.DeepEqual(report.Cache, Cache{StaleFor: time.Hour, Share: "all"}) ||
		report.OnOverload[0].Word != "stale" ||
		thumbnail.Cache.StaleFor != 0 || thumbnail.OnOverload[0].Word != "reject" {
		t.Errorf("stale answers: %+v, %+v", report, thumbnail)
	}
	if report.Backend == thumbnail.Backend {
		t.Errorf("both run on %s", report.Backend)
	}
	for o, want := range map[string]string{"report": "2/s, 20", "thumbnail": "1/s, 5"} {
		b := c.Backends[c.Operations[o].Backend]
		if got := fmt.Sprintf("%s, %d", b.Drain.Rate, b.Line.Capacity); got != want {
			t.Errorf("%s: %s, want %s", o, got, want)
		}
	}
	if c.Identity.Anonymous == "" || !c.Worker.Embedded || c.Redis.URL != "" ||
		c.HTTP.Listen != ":8080" || c.Admin.Listen != "127.0.0.1:8081" {
		t.Errorf("the demo isn't open, in memory and alone: %+v", c)
	}
}

// A limit that package limits can't count is reported at its line, if it has no other problem.
func TestALimitThatCannotBeCountedIsReportedAtTheLimit(t *testing.T) {
	t.Parallel()
	text := `
identity: {anonymous: free}
tiers:
  free:
    limits:
      - {name: fine, algorithm: token-bucket, limit: 60, window: 1m}
      - {name: odd, algorithm: token-bucket, limit: 1, window: 366d, burst: 1000}
limits:
  - {name: busted, algorithm: token-bucket, limit: 61, window: 0s}
  - {name: from-env, algorithm: token-bucket, limit: "${ONE}", window: 366d, burst: 1000}
backends: {reports: {url: "http://127.0.0.1:9000", drain: {rate: 5/s}}}
operations: {report: {backend: reports, path: /render, limits: [{name: again, algorithm: leaky-bucket, limit: 1, window: 366d, burst: 1000}]}}
`
	const why = "burst 1000: 1 per 8784h0m0s can be counted exactly up to 100; use a smaller " +
		"burst, or a rounder amount and window"
	_, _, err := load(text)
	want := `forebay.yaml:7: tiers.free.limits[1]: limit odd: ` + why + `
forebay.yaml:9: limits[0].window: "0s" is out of bounds for limit "busted"; write 1ms to 366d
forebay.yaml:10: limits[1]: can't be kept as the environment has it; use a rounder limit and window, and a burst that is no larger
forebay.yaml:12: operations.report.limits[0]: limit again: ` + why
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	c := mustLoad(t, minimal)
	c.Limits = []Limit{{Name: "odd", Per: "ip", Algorithm: limits.TokenBucket, Limit: 1,
		Window: Window(limits.MaxWindow), Burst: 1000, Enforce: true}}
	if _, err := c.Check(); err == nil || err.Error() != "limits[0]: limit odd: "+why {
		t.Errorf("Check: %v", err)
	}
	c.Limits[0].Window, c.Limits[0].Per = Day, "planet"
	if _, err := c.Check(); err == nil || err.Error() != `limits[0].per: "planet" is none of client, ip, operation, client+operation, tier, country, global
limits[0].window: "month" is of the calendar, and the algorithm of limit "odd" is token-bucket; write a duration such as 24h, or use fixed-window` {
		t.Errorf("Check: %v", err)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	c, _, err := Load("testdata/working_full.yaml", env, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Admin.Token != "0123456789abcdef" ||
		c.Backends["reports"].Headers["Authorization"] != "Bearer hunter2" ||
		!strings.Contains(string(c.Redis.URL), "hunter2") {
		t.Fatalf("the secrets are not those of the environment")
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%v %+v %s\n%s", c, c, c.Admin.Token, c.Describe())
	slog.New(slog.NewTextHandler(&out, nil)).Info("start", "config", c, "token", c.Admin.Token,
		"redis", c.Redis.URL)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("start", "config", c, "token", c.Admin.Token,
		"redis", c.Redis.URL)
	if err := json.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "0123456789abcdef", hookSecret} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s is shown in:\n%s", secret, out.String())
		}
	}
	for url, want := range map[strictyaml.SecretURL]string{
		"redis://127.0.0.1:6379/0":        "redis://127.0.0.1:6379/0",
		"redis://user:hunter2@h:6379/0":   "redis://***@h:6379/0",
		"redis://:hunt/er@2?@h:6379?db=1": "redis://***@h:6379?***",
		"hunter2":                         "***",
	} {
		if got := url.String(); got != want {
			t.Errorf("%s is shown, want %s", got, want)
		}
	}
}
