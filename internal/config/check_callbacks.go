package config

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxCallbackURL bounds a callback's URL: a job's record holds it.
const maxCallbackURL = 512

func (c Callbacks) check(r *report, key string) {
	r.duration(key+".timeout", c.Timeout, 100*time.Millisecond, time.Minute)
	for n, wait := range c.Schedule {
		r.duration(fmt.Sprintf("%s.schedule[%d]", key, n), wait, 100*time.Millisecond, 7*day)
	}
}

// check holds a client's webhooks against the rules for all.
func (c Callback) check(r *report, key string, rules Callbacks) {
	if c.URL == "" && len(c.Secrets) == 0 && !r.given(key) {
		return
	}
	if c.URL != "" {
		checkCallbackURL(r, key+".url", c.URL, rules)
	}
	if len(c.Secrets) == 0 {
		r.errorf(key+".secrets", "needs at least one, in a list: echo whsec_$(openssl rand -base64 32)")
	}
	for n, secret := range c.Secrets {
		at := fmt.Sprintf("%s.secrets[%d]", key, n)
		text, prefixed := strings.CutPrefix(string(secret), "whsec_")
		bytes, err := base64.StdEncoding.DecodeString(text)
		switch {
		case !prefixed || err != nil || len(bytes) < 24 || len(bytes) > 64:
			r.errorf(at, "must be whsec_ and the base64 of 24 to 64 random bytes: echo whsec_$(openssl rand -base64 32)")
		case slices.Contains(c.Secrets[:n], secret):
			r.errorf(at, "stands in the list twice")
		}
	}
}

// checkCallbackURL says what is wrong with a URL by its form. Where it leads is looked at when it is called.
func checkCallbackURL(r *report, key, text string, rules Callbacks) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(text) > maxCallbackURL:
		r.errorf(key, "isn't a URL of at most %d characters; write it as https://host/path", maxCallbackURL)
	case u.Scheme == "http" && !rules.HTTP:
		r.errorf(key, "isn't https; write https, or set callbacks.http: true")
	case u.User != nil:
		r.errorf(key, "holds a user, which would be sent in the clear to whoever answers there; what is sent is signed instead")
	case u.Fragment != "" || strings.Contains(text, "#"):
		r.errorf(key, "holds a fragment (#), which is never sent; leave it out")
	}
}
