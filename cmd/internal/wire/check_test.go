package wire_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay/forebay/cmd/internal/wire"
)

// checked is what -check says of a config with the given text after the minimal one.
func checked(t *testing.T, text string, env map[string]string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	base := strings.NewReplacer("%s]", "]", `"%s"`, `"5/s"`).Replace(minimal)
	if strings.Contains(text, "identity:") {
		base = strings.Replace(base, "identity:", "# identity:", 1)
	}
	if err := os.WriteFile(filepath.Join(dir, "forebay.yaml"), []byte(base+text),
		0o600); err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	code = wire.Check(filepath.Join(dir, "forebay.yaml"),
		func(name string) (string, bool) { v, ok := env[name]; return v, ok }, &out, &said)
	return code, out.String(), strings.ReplaceAll(said.String(), dir+string(filepath.Separator), "")
}

// C122: a Redis that could not be used is found by -check, with its line and mend, and no part of a
// password is shown. So is every file that the config names.
func TestCheckFindsWhatWouldOnlyFailAtTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, password, want string }{
		{`redis: {url: "redis://:${PW}@h"}`, "p#s3cret",
			"forebay.yaml:6: redis.url: has a character"},
		{`redis: {url: "redis://:${PW}@h"}`, "p/s3cret",
			"forebay.yaml:6: redis.url: has a character"},
		{`redis: {url: "redis://:${PW}@h"}`, "p?s3cret",
			"forebay.yaml:6: redis.url: has a character"},
		{`redis: {url: "redis://:${PW}@h"}`, "p%s3cret", "forebay.yaml:6: redis.url: has a %"},
		{`redis: {url: "redis://:${PW}@h"}`, "", "forebay.yaml:6: redis.url: has a user without " +
			"a password"},
		{`redis: {url: "redis://h1,h2/0"}`, "", "forebay.yaml:6: redis.url: has several addresses"},
		{`redis: {url: "redis://h:99999"}`, "", "forebay.yaml:6: redis.url: has an address " +
			"(number 1)"},
		{`redis: {url: "http://h"}`, "", "forebay.yaml:6: redis.url: must begin with redis://"},
		{`redis: {url: "redis://:a@h", password: "${PW}"}`, "s3cret",
			"forebay.yaml:6: redis.password: is given in the URL as well"},
		{`redis: {password: "${PW}"}`, "s3cret", "forebay.yaml:6: redis.url: is required"},
		{"redis:\n  url: rediss://h\n  tls:\n    ca: ${PW}", "s3cret",
			"forebay.yaml:9: redis.tls.ca: can't be read"},
		{"redis:\n  url: rediss://h\n  tls:\n    ca: forebay.yaml", "",
			"forebay.yaml:9: redis.tls.ca: holds no certificate"},
		{`region: {name: eu, sync: {redis: "redis://:${PW}@h"}}`, "p#s3cret",
			"forebay.yaml:6: region.sync.redis: has a character"},
		{`region: {name: eu, sync: {redis: "redis://h", tls: {ca: x}}}`, "",
			"forebay.yaml:6: region.sync.tls: has no effect"},
		{"shutdown: 30s\nidentity: {anonymous: free, country_database: \"${PW}\"}", "s3cret",
			"forebay.yaml:7: identity.country_database: \"${PW}\" (with the environment's value) " +
				"can't be read"},
		{"shutdown: 30s\nidentity: {anonymous: free, country_database: forebay.yaml}", "",
			"forebay.yaml:7: identity.country_database: \"forebay.yaml\" can't be used"},
		{"shutdown: 30s\nidentity: {anonymous: free, clients_file: gone.yaml}", "",
			"forebay.yaml:7: identity.clients_file: \"gone.yaml\" can't be read"},
		{`http: {listen: "10.0.0.256:8080"}`, "", "forebay.yaml:6: http.listen: "},
		{`http: {listen: "my host:8080"}`, "", "forebay.yaml:6: http.listen: "},
		{`admin: {listen: "127.0.0.1:8080"}`, "", "forebay.yaml:6: admin.listen: "},
		{"http: {listen: \"127.0.0.1:8080\"}\nadmin: {listen: \"localhost:8080\"}", "",
			"forebay.yaml:7: admin.listen: "},
	} {
		code, stdout, stderr := checked(t, c.text, map[string]string{"PW": c.password})
		if code != wire.ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) ||
			strings.Contains(stderr, "s3cret") {
			t.Errorf("%s\nexit %d, said %q; want %q", c.text, code, stderr, c.want)
		}
	}
}
