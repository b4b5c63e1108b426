package webhook_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/webhook"
)

// Every network that isn't the public internet is refused: by its first and last address, and for
// IPv4 also in each form of IPv6 address that might be translated back on the path.
func TestOnlyPublicAddressesArePermitted(t *testing.T) {
	t.Parallel()
	closed := []string{
		"0.0.0.0", "0.255.255.255", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255",
		"100.100.100.200", "127.0.0.1", "127.255.255.254",
		"169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.31.196.1",
		"192.52.193.1", "192.175.48.6", "192.0.0.8", "192.0.0.192", "192.0.2.1", "192.88.99.1",
		"192.168.0.1", "198.18.0.1",
		"198.19.255.255", "198.51.100.7", "203.0.113.255", "224.0.0.1", "239.255.255.255",
		"240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::a00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1",
		"2001:3::1", "2001:4:112::1", "2620:4f:8000::1", "2606:4700::5efe:a00:1",
		"2606:4700::200:5efe:7f00:1", "::7f00:1", "2001::1",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:20::1", "2001:db8::1",
		"2002:a00:1::", "2002:7f00:1::1", "3fff::1", "5f00::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
		"4000::1",
	}
	open := []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.255.255",
		"172.32.0.1", "169.253.255.255", "192.167.255.255", "223.255.255.255",
		"2606:4700::1111", "2606:4700::5eff:a00:1", "2606:4700::100:5efe:a00:1", "2620:4f:8001::1",
		"192.31.197.1", "2001:4860:4860::8888", "2a00:1450::1", "2400:cb00::1",
		"::ffff:8.8.8.8"}
	var nothing webhook.Policy
	for _, text := range closed {
		if nothing.Permits(netip.MustParseAddr(text)) {
			t.Errorf("%s is permitted", text)
		}
	}
	for _, text := range open {
		if !nothing.Permits(netip.MustParseAddr(text)) {
			t.Errorf("%s isn't permitted", text)
		}
	}
	if nothing.Permits(netip.Addr{}) {
		t.Error("no address at all is permitted")
	}
	some := webhook.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"),
		netip.MustParsePrefix("fd00:1::/32")}}
	for text, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true,
		"10.2.0.1": false, "fd00:1::7": true, "fd00:2::7": false, "64:ff9b::a01:203": false,
		"8.8.8.8": true} {
		if got := some.Permits(netip.MustParseAddr(text)); got != want {
			t.Errorf("with a list that allows 10.1.0.0/16 and fd00:1::/32, %s: %v", text, got)
		}
	}
}

// Case C117: A URL is checked against the same rules wherever it comes from.
func TestAURLIsCheckedBeforeItIsTaken(t *testing.T) {
	t.Parallel()
	var strict webhook.Policy
	loose := webhook.Policy{HTTP: true, Ports: []int{8443, 9000},
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, test := range []struct {
		url           string
		strict, loose bool
	}{
		{"https://hooks.example.com/forebay?x=1", true, true},
		{"https://hooks.example.com:8443", false, true},
		{"https://hooks.example.com:443", true, true},
		{"https://hooks.example.com:80", true, true},
		{"https://hooks.example.com:22/", false, false},
		// Inner names, while no inner network is allowed.
		{"https://LocalHost./", false, true},
		{"https://a.localhost/", false, true},
		{"https://hooks.internal/", false, true},
		{"https://Hooks.Internal./", false, true},
		{"https://printer.local/", false, true},
		{"https://nas.home.arpa/", false, true},
		{"https://1.0.0.127.in-addr.arpa/", false, true},
		{"https://x.onion/", false, true},
		{"https://a.test/", false, true},
		{"https://a.invalid/", false, true},
		{"https://redis/", false, true},
		{"https://internal.example.com/", true, true},
		{"https://localhost.example.com/", true, true},
		{"HTTPS://hooks.example.com./a%20b", true, true},
		{"https://8.8.8.8/", true, true},
		{"https://[2606:4700::1111]:443/", true, true},
		{"https://localhost/", false, true}, // a name: its address is checked when it is dialed
		{"http://hooks.example.com/", false, true},
		{"http://127.0.0.1:9000/", false, true},
		{"https://127.0.0.1/", false, true},
		{"https://[::1]/", false, false},
		{"https://[::ffff:10.0.0.1]/", false, false},
		{"https://[fe80::1%25eth0]/", false, false},
		{"https://10.0.0.1/", false, false},
		{"https://169.254.169.254/latest/meta-data/", false, false},
		{"https://127.1/", false, false},
		{"https://2130706433/", false, false},
		{"https://0x7f000001/", false, false},
		{"https://0177.0.0.1/", false, false},
		{"https://user@hooks.example.com/", false, false},
		{"https://user:secret@hooks.example.com/", false, false},
		{"https://hooks.example.com/#part", false, false},
		{"https://hooks.example.com:0/", false, false},
		{"https://hooks.example.com:65536/", false, false},
		{"https://hooks.example.com:/", false, false},
		{"https:///path", false, false},
		{"https://./", false, false},
		{"https:hooks.example.com", false, false},
		{"//hooks.example.com/", false, false},
		{"/hook", false, false},
		{"", false, false},
		{"ftp://hooks.example.com/", false, false},
		{"file:///etc/passwd", false, false},
		{"gopher://hooks.example.com/", false, false},
		{"javascript:alert(1)", false, false},
		{"https://hooks.example.com/a b", false, false},
		{"https://hooks.example.com/\r\nX-Evil:1", false, false},
		{"https://hooks.exämple.com/", false, false},
		{"https://hooks.example.com/" + strings.Repeat("x", 486), true, true},
		{"https://hooks.example.com/" + strings.Repeat("x", 487), false, false},
	} {
		for _, rule := range []struct {
			name   string
			policy webhook.Policy
			want   bool
		}{{"strict", strict, test.strict}, {"loose", loose, test.loose}} {
			err := rule.policy.Check(test.url)
			if (err == nil) != rule.want {
				t.Errorf("%s: %.80q: %v", rule.name, test.url, err)
			}
			if err != nil &&
				(!strings.HasPrefix(err.Error(), "must ") || strings.HasSuffix(err.Error(), ".")) {
				t.Errorf("%q doesn't fit into a sentence for a client", err)
			}
		}
	}
}

func TestAClientIsNotifiedWhereItAsksOrAtItsOwnURL(t *testing.T) {
	t.Parallel()
	s := secret(t, ofBytes(32, 'k'))
	rules := webhook.Rules{Clients: book{"acme": {"https://acme.example/own", []webhook.Secret{s}},
		"globex": {"", []webhook.Secret{s}}}}
	for _, test := range []struct{ client, asked, want, refusal string }{
		{"acme", "", "https://acme.example/own", ""},
		{"acme", "https://acme.example/this", "https://acme.example/this", ""},
		{"globex", "", "", ""},
		{"globex", "https://globex.example/", "https://globex.example/", ""},
		{"globex", "http://globex.example/", "", "must begin with https://"},
		{"ip:192.0.2.7", "", "", ""},
		{"ip:192.0.2.7", "https://anybody.example/", "", "no secret"},
	} {
		got, err := rules.For(test.client, test.asked)
		if got != test.want || (err == nil) != (test.refusal == "") ||
			err != nil && !strings.Contains(err.Error(), test.refusal) {
			t.Errorf("%s asks for %q: %q, %v", test.client, test.asked, got, err)
		}
	}
}

func TestRetryAfterIsReadAsSecondsOrADate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 7, 28, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second,
		" 120 ": 2 * time.Minute, "-5": 0, "1.5": 0, "soon": 0,
		"Mon, 30 Nov 2026 07:29:00 GMT": time.Minute, "Mon, 30 Nov 2026 07:00:00 GMT": 0} {
		if got := webhook.RetryAfter(text, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", text, got, want)
		}
	}
}
