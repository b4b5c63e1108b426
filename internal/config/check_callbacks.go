package config

import (
	"errors"
	"slices"

	"github.com/forebay/forebay/internal/strictyaml"
	"github.com/forebay/forebay/internal/webhook"
)

// check checks what a client needs for its webhooks, except its URL: see checkURLs.
func (c Callback) check(r *report, key string) {
	if c.URL == "" && len(c.Secrets) == 0 && !r.Given(key) {
		return
	}
	if len(c.Secrets) == 0 {
		r.Errorf(key+".secrets",
			"needs at least one, in a list: echo whsec_$(openssl rand -base64 32)")
	}
	for n, secret := range c.Secrets {
		if slices.Contains(c.Secrets[:n], secret) {
			r.Errorf(strictyaml.At(key+".secrets", n), "stands in the list twice")
		}
	}
}

// checkURLs checks the URLs of clients' webhooks against the rules for all webhooks, if these have
// no error. A URL may come from the environment, so no part of it is shown.
func (c *Config) checkURLs(r *report, list string, clients []Client) {
	if r.FailedWithin("callbacks") {
		return
	}
	for n, client := range clients {
		if client.Callback.URL == "" {
			continue
		}
		mend := ""
		err := c.Callbacks.Check(client.Callback.URL)
		switch {
		case err == nil:
			continue
		case errors.Is(err, webhook.ErrHTTP):
			mend = "; write https, or set callbacks.http: true"
		case errors.Is(err, webhook.ErrPort):
			mend = "; write one of them, or permit it by callbacks.ports"
		case errors.Is(err, webhook.ErrAddress), errors.Is(err, webhook.ErrName):
			mend = "; write one, or open its network by callbacks.allow"
		}
		r.Errorf(strictyaml.At(list, n)+".callback.url", "%v%s", err, mend)
	}
}
