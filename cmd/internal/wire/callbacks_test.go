package wire_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/cmd/internal/wire"
	"forebay/internal/webhook"
)

const (
	firstSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	nextSecret  = "whsec_bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4="
)

// A client's secrets are those of the clients file as it is: that is how they are rotated.
func TestSecretsOfTheClientsFileAreLive(t *testing.T) {
	t.Parallel()
	withSecrets := func(secrets string) string {
		return "clients:\n" + client("acme", "tier: pro, callback: {url: \"https://acme.example/hook\", secrets: ["+secrets+"]}") + client("globex", "tier: free")
	}
	c, file := loadRoster(t, withSecrets(firstSecret))
	w := watch(t, c, file)
	signed := func() string {
		url, secrets := w.Callback("acme")
		if url != "https://acme.example/hook" {
			t.Errorf("acme's URL is %q", url)
		}
		return webhook.Sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
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
	if said := w.log.take(); !strings.Contains(said, "clients[0].callback.secrets[0]: must be whsec_") || strings.Contains(said, "whsec_short") {
		t.Errorf("log: %s", said)
	}
}

// C117: a URL of the config is held against the same rules as one of a request, before anything starts.
func TestACallbackThatCannotBeIsToldByCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ callbacks, callback, want string }{
		{"{}", `{url: "https://acme.example/", secrets: [` + firstSecret + `]}`, ""},
		{"{http: true, allow: [10.0.0.0/8]}", `{url: "http://10.1.2.3/", secrets: [` + firstSecret + `]}`, ""},
		{"{}", `{url: "http://acme.example/", secrets: [` + firstSecret + `]}`, "callback.url: isn't https"},
		{"{}", `{url: "https://169.254.169.254/", secrets: [` + firstSecret + `]}`, "callback.url: must have a public address"},
		{"{}", `{url: "https://acme.example/"}`, "callback.secrets"},
		{"{}", `{secrets: ["whsec_dG9vIHNob3J0"]}`, "callback.secrets[0]: must be whsec_"},
	} {
		path := filepath.Join(t.TempDir(), "forebay.yaml")
		text := fmt.Sprintf(`
callbacks: %s
identity: {clients: [{name: acme, tier: free, key_sha256: [%s], callback: %s}]}
tiers: {free: {}}
backends: {b: {url: "http://127.0.0.1:9", drain: {rate: 1/s}}}
operations: {o: {backend: b, path: /}}
`, test.callbacks, digest("acme"), test.callback)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		code := wire.Check(path, noEnv, &out, &said)
		if (code == wire.ExitOK) != (test.want == "") || !strings.Contains(said.String(), test.want) {
			t.Errorf("%s: exit %d: %s", test.callback, code, said.String())
		}
		if strings.Contains(out.String()+said.String(), firstSecret[8:]) || strings.Contains(said.String(), "dG9vIHNob3J0") {
			t.Error("a secret is shown")
		}
	}
}
