package config

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay/forebay/internal/strictyaml"
)

// check looks at a client's webhooks. Its URL is left to callbackRules.
func (c Callback) check(r *strictyaml.Report, key string) {
	if c.URL == "" && len(c.Secrets) == 0 && !r.Given(key) {
		return
	}
	if len(c.Secrets) == 0 {
		r.Errorf(key+".secrets", "needs at least one, in a list: echo whsec_$(openssl rand -base64 32)")
	}
	for n, secret := range c.Secrets {
		at := fmt.Sprintf("%s.secrets[%d]", key, n)
		text, prefixed := strings.CutPrefix(string(secret), "whsec_")
		bytes, err := base64.StdEncoding.DecodeString(text)
		switch {
		case !prefixed || err != nil || len(bytes) < 24 || len(bytes) > 64:
			r.Errorf(at, "must be whsec_ and the base64 of 24 to 64 random bytes: echo whsec_$(openssl rand -base64 32)")
		case slices.Contains(c.Secrets[:n], secret):
			r.Errorf(at, "stands in the list twice")
		}
	}
}

// callbackRules reports what the rules of whoever will call say against clients' URLs, if the rules for all were understood.
func (c *Config) callbackRules(r *strictyaml.Report, list string, clients []Client, rules []Rules) {
	if r.FailedWithin("callbacks") {
		return
	}
	for n, client := range clients {
		for _, rule := range rules {
			if rule.Callback == nil || client.Callback.URL == "" {
				continue
			}
			if err := rule.Callback(c.Callbacks, client.Callback.URL); err != nil {
				r.Errorf(fmt.Sprintf("%s[%d].callback.url", list, n), "%v", err)
			}
		}
	}
}
