package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Secret is shared by a client and Forebay, so that the client can verify its webhooks. It is never
// shown: printed or logged, it is ***.
type Secret struct{ key string }

// Redacted returns ***, for package strictyaml.
func (Secret) Redacted() string { return "***" }

func (s Secret) String() string { return s.Redacted() }

// GoString hides it from %#v.
func (s Secret) GoString() string { return s.Redacted() }

// Bounds of a secret's bytes, from Standard Webhooks.
const (
	minSecret    = 24
	maxSecret    = 64
	secretPrefix = "whsec_"
)

// ParseSecret reads a secret as Standard Webhooks shows it: whsec_ and the standard base64 of 24 to
// 64 random bytes. Its errors don't show the text.
func ParseSecret(text string) (s Secret, err error) {
	err = s.UnmarshalText([]byte(text))
	return s, err
}

// UnmarshalText is ParseSecret.
func (s *Secret) UnmarshalText(text []byte) error {
	encoded, ok := strings.CutPrefix(string(text), secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return errors.New("must be whsec_ and the base64 of 24 to 64 random bytes: " +
			"echo whsec_$(openssl rand -base64 32)")
	}
	*s = Secret{string(key)}
	return nil
}

// Sign returns the webhook-signature field of one attempt: a signature (HMAC-SHA256) with each
// secret, so that a receiver needs only one of them. id has no full stop; at counts in whole
// seconds.
func Sign(secrets []Secret, id string, at time.Time, body []byte) string {
	var out []byte
	for i, s := range secrets {
		mac := hmac.New(sha256.New, []byte(s.key))
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		if i > 0 {
			out = append(out, ' ')
		}
		out = base64.StdEncoding.AppendEncode(append(out, "v1,"...), mac.Sum(nil))
	}
	return string(out)
}
