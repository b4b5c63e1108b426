package wire_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/webhook"
)

const (
	firstSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	nextSecret  = "whsec_bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4="
)

// A client's secrets are those of the clients file as it is: that is how they are rotated.
func TestSecretsOfTheClientsFileAreLive(t *testing.T) {
	t.Parallel()
	withSecrets := func(secrets string) string {
		return "clients:\n" + client("acme", "tier: pro, callback: {url: "+
			"\"https://acme.example/hook\", secrets: ["+secrets+"]}") +
			client("globex", "tier: free")
	}
	c, file := loadRoster(t, withSecrets(firstSecret))
	w := watch(t, c)
	signed := func() string {
		url, secrets := w.Callback("acme")
		if url != "https://acme.example/hook" {
			t.Errorf("acme's URL is %q", url)
		}
		return webhook.Sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
			[]byte(`{"test": 2432232314}`))
	}
	const first = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := signed(); got != first {
		t.Errorf("signed %s", got)
	}
	for _, none := range []string{"globex", "fixed", "ip:192.0.2.7"} {
		if url, secrets := w.Callback(none); url != "" || len(secrets) != 0 {
			t.Errorf("%s has %q and %d secrets", none, url, len(secrets))
		}
	}
	write(t, file, withSecrets(nextSecret+", "+firstSecret))
	w.look()
	if got := signed(); !strings.HasSuffix(got, " "+first) || strings.HasPrefix(got, first) {
		t.Errorf("rotated: %s", got)
	}
	write(t, file, withSecrets("whsec_short"))
	w.look()
	if got := signed(); !strings.HasSuffix(got, " "+first) {
		t.Errorf("a broken file changed it: %s", got)
	}
	if said := w.log.take(); !strings.Contains(said, "clients[0].callback.secrets[0]: must be "+
		"whsec_") || strings.Contains(said, "whsec_short") {
		t.Errorf("log: %s", said)
	}
}

// C117, C121: a URL of the config is checked by the same rules as one of a request before anything
// starts, and in a clients file too. What is told has the place and the mend.
func TestACallbackThatCannotBeIsToldByCheck(t *testing.T) {
	t.Parallel()
	const (
		signed  = `, secrets: [` + firstSecret + `]}`
		private = "url: must have a public address; write one, or open its network by " +
			"callbacks.allow"
	)
	for _, test := range []struct{ callbacks, callback, want string }{
		{"{}", `{url: "https://acme.example/"` + signed, ""},
		{"{http: true, allow: [10.0.0.0/8]}", `{url: "http://10.1.2.3/"` + signed, ""},
		{"{}", `{url: "http://acme.example/"` + signed, "url: must begin with https://: http:// " +
			"isn't permitted here; write https, or set callbacks.http: true"},
		{"{}", `{url: "https://169.254.169.254/"` + signed, private},
		{"{allow: [10.0.0.0/8]}", `{url: "https://[fd00::1]/"` + signed, private},
		{"{ports: [8443]}", `{url: "https://acme.example:8443/"` + signed, ""},
		{"{}", `{url: "https://acme.example:8443/"` + signed, "url: must have port 443 or 80: " +
			"others aren't permitted here; write one of them, or permit it by callbacks.ports"},
		{"{}", `{url: "https://hooks.internal/"` + signed, "url: must have a public name: " +
			"localhost, .internal and the like are inner ones; write one, or open its network by " +
			"callbacks.allow"},
		{"{}", `{url: "ftp://acme.example/"` + signed, "url: must begin with https://"},
		{"{}", `{url: "https://u:hunter2@acme.example/"` + signed,
			"url: must have no user and no password in it"},
		{"{}", `{url: "https://acme.example/#x"` + signed, "url: must have no fragment: no " +
			"receiver would see it"},
		{"{}", `{url: "https://acme.example:0/"` + signed, "url: must have a port from 1 to " +
			"65535, or none"},
		{"{}", `{url: "https://2130706433/"` + signed, "url: must have a host that is a name, or " +
			"an address in its usual form"},
		{"{}", `{url: acme.example` + signed, "url: must be an absolute URL with a host, such as " +
			"https://host/path"},
		{"{}", `{url: "https://acme.example/` + strings.Repeat("x", 500) + `"` + signed,
			"url: must be a URL of at most 512 bytes"},
		{"{}", `{url: "https://acme.example/"}`,
			`secrets: needs at least one, in a list: echo whsec_$(openssl rand -base64 32)`},
		{"{}", `{secrets: ["whsec_dG9vIHNob3J0"]}`,
			`secrets[0]: must be whsec_ and the base64 of 24 to 64 random bytes: echo ` +
				`whsec_$(openssl rand -base64 32)`},
	} {
		dir := t.TempDir()
		path, file := filepath.Join(dir, "forebay.yaml"), filepath.Join(dir, "clients.yaml")
		told := func(own, beside, place string) {
			t.Helper()
			write(t, path, fmt.Sprintf(`
callbacks: %s
identity: {clients_file: clients.yaml, clients: [{name: acme, tier: free, key_sha256: [%s]%s}]}
tiers: {free: {limits: [{name: l, algorithm: token-bucket, limit: 60, window: 1m}]}}
backends: {b: {url: "http://127.0.0.1:9", drain: {rate: 1/s}}}
operations: {o: {backend: b, path: /}}
`, test.callbacks, digest("acme"), own))
			write(t, file, "clients:\n"+client("globex", "tier: free"+beside))
			var out, said bytes.Buffer
			code := wire.Check(path, noEnv, &out, &said)
			if test.want == "" {
				if code != wire.ExitOK {
					t.Errorf("%s: exit %d: %s", test.callback, code, said.String())
				}
			} else if want := place + test.want + "\n"; code != wire.ExitUsage ||
				said.String() != want {
				t.Errorf("%s: exit %d, and told is\n%swant\n%s", test.callback, code, said.String(),
					want)
			}
			for _, secret := range []string{firstSecret[8:], "dG9vIHNob3J0", "hunter2"} {
				if strings.Contains(out.String()+said.String(), secret) {
					t.Error("a secret is shown")
				}
			}
		}
		told(", callback: "+test.callback, "", path+":3: identity.clients[0].callback.")
		told("", ", callback: "+test.callback, file+":2: clients[0].callback.")
	}
}
