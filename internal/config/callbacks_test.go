package config

import (
	"strings"
	"testing"
)

// hooked is a config with clients that want to be told.
const hooked = `
identity:
  clients:
    - {name: acme, tier: free, key_sha256: [9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08], callback: {secrets: ["${HOOK_SECRET}"], url: "https://acme.example/"}}
    - name: globex
      tier: free
      key_sha256: [60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752]
      callback:
        secrets: ["${HOOK_SECRET}"]
        url: "${WITH_SECRET}"
    - {name: quiet, tier: free, key_sha256: [fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9], callback: {secrets: ["${HOOK_SECRET}"]}}
tiers: {free: {}}
backends: {reports: {url: "http://127.0.0.1:9000", drain: {rate: 5/s}}}
operations: {report: {backend: reports, path: /render}}
`

// What can't be called is reported where the URL stands.
func TestURLsOfCallbacksAreCheckedByTheRulesForAll(t *testing.T) {
	t.Parallel()
	busted := func(text string) string {
		t.Helper()
		if _, _, err := load(text); err != nil {
			return err.Error()
		}
		return ""
	}
	const at = "forebay.yaml:10: identity.clients[1].callback.url: "
	if got, want := busted(hooked), at+"must begin with https://: http:// isn't permitted here; "+
		"write https, or set callbacks.http: true"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got, want := busted(hooked+"callbacks: {http: true}\n"),
		at+"must have no user and no password in it"; got != want {
		t.Errorf("with a key that permits http: got:\n%s\nwant:\n%s", got, want)
	}
	if got := busted(hooked +
		"callbacks: {http: maybe}\n"); got != `forebay.yaml:15: callbacks.http: "maybe" must be `+
		`true or false` {
		t.Errorf("by rules that weren't understood: %s", got)
	}
	if got := busted(hooked + "callbacks: []\n"); !strings.HasPrefix(got,
		"forebay.yaml:15: callbacks: ") || strings.Contains(got, "\n") {
		t.Errorf("by rules that are none: %s", got)
	}
	if got := busted(strings.Replace(hooked, `"${WITH_SECRET}"`, "[a]", 1)); !strings.Contains(got,
		"clients[1].callback.url: ") || strings.Contains(got, "\n") {
		t.Errorf("of a URL that wasn't understood: %s", got)
	}
	fine := strings.Replace(hooked, `"${WITH_SECRET}"`, "http://globex.example/", 1)
	c := mustLoad(t, fine+"callbacks: {http: true}\n")
	c.Callbacks.HTTP = false
	if _, err := c.Check(); err == nil ||
		!strings.HasPrefix(err.Error(), "identity.clients[1].callback.url: must begin with "+
			"https://") {
		t.Errorf("Check: %v", err)
	}
}

// C121: so are they in a clients file, by the rules of its config.
func TestRulesForCallbacksHoldForTheClientsFile(t *testing.T) {
	t.Parallel()
	const text = `clients:
  - {name: fine, tier: free, key_sha256: [60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752], callback: {secrets: ["${HOOK_SECRET}"], url: "https://a.example/"}}
  - name: busted
    tier: free
    key_sha256: [fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9]
    callback:
      secrets: ["${HOOK_SECRET}"]
      url: http://a.example/
`
	c := mustLoad(t, minimal)
	if _, err := ParseClients("clients.yaml", []byte(text), env, c); err == nil ||
		!strings.HasPrefix(err.Error(), "clients.yaml:8: clients[1].callback.url: must begin "+
			"with https://") {
		t.Errorf("got %v", err)
	}
	c.Callbacks.HTTP = true
	if clients, err := ParseClients("clients.yaml", []byte(text), env, c); err != nil ||
		len(clients.Clients) != 2 {
		t.Errorf("where the config permits it: %v, %v", clients, err)
	}
}
