package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/webhook"
)

func secret(t *testing.T, text string) webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ofBytes returns the text of a secret with a key of n equal bytes.
func ofBytes(n int, b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), n)))
}

// The vector that Standard Webhooks and its libraries publish.
func TestThePublishedVectorIsSignedAsPublished(t *testing.T) {
	t.Parallel()
	s := secret(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	at := time.Unix(1614265330, 999)
	got := webhook.Sign([]webhook.Secret{s}, "msg_p5jXN8AQM9LWM0D4loKWxJek", at,
		[]byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	both := webhook.Sign([]webhook.Secret{s, secret(t, ofBytes(32, 'n'))},
		"msg_p5jXN8AQM9LWM0D4loKWxJek", at, []byte(`{"test": 2432232314}`))
	if !strings.HasPrefix(both, got+" v1,") || strings.Count(both, " ") != 1 {
		t.Errorf("two secrets sign %s", both)
	}
}

func TestASecretHas24To64BytesAndIsNeverShown(t *testing.T) {
	t.Parallel()
	for _, n := range []int{24, 32, 64} {
		if _, err := webhook.ParseSecret(ofBytes(n, 'k')); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, text := range []string{"", "whsec_", ofBytes(23, 'k'), ofBytes(65, 'k'),
		strings.TrimPrefix(ofBytes(32, 'k'), "whsec_"), "whsec_" + strings.Repeat("k", 31),
		"whsk_" + ofBytes(32, 'k')[6:], ofBytes(32, 'k') + "\n "} {
		switch _, err := webhook.ParseSecret(text); {
		case err == nil:
			t.Errorf("%q is a secret", text)
		case len(text) > 8 && strings.Contains(err.Error(), text[6:]):
			t.Errorf("the error shows it: %v", err)
		}
	}
	s := secret(t, ofBytes(32, 'k'))
	inside := struct{ S webhook.Secret }{s}
	text, err := json.Marshal(inside)
	if shown := fmt.Sprintf("%v %+v %#v %s %s", s, inside, inside, s, text); err != nil ||
		strings.Contains(shown, "k") && strings.Contains(shown, "kk") ||
		strings.Contains(shown, "107") {
		t.Errorf("it is shown: %s (%v)", shown, err)
	}
}
