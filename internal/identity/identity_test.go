package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func digest(key string) Digest { return sha256.Sum256([]byte(key)) }

// request returns a request of a peer, with header lines "Name: value".
func request(peer string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func TestAKeyIsAcceptedInEitherHeader(t *testing.T) {
	t.Parallel()
	const key = "fb_live_0123456789.-_~+/=="
	i := New(Config{Clients: []Registered{{Name: "acme", Tier: "pro",
		Keys: []Digest{digest("old"), digest(key)}}}})
	want := Client{ID: "acme", Name: "acme", Tier: "pro", Address: "192.0.2.1"}
	for _, lines := range [][]string{
		{"Authorization: Bearer " + key},
		{"Authorization: bearer   " + key},
		{"X-API-Key: " + key},
		{"X-API-Key: " + key, "Authorization: Bearer " + key},
		{"X-API-Key: " + key, "Authorization: Basic Zm9vOmJhcg=="}, // a proxy's own scheme
		{"X-API-Key: old"},
	} {
		got, err := i.Identify(request("192.0.2.1:4711", lines...))
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", lines, got, err, want)
		}
	}
}

// C43: a caller without a known key never gets a client that others share. C48: over-long keys are
// refused.
func TestAnUnknownKeyIsRefusedAndCountedByAddress(t *testing.T) {
	t.Parallel()
	i := New(Config{
		Clients: []Registered{{Name: "acme", Tier: "pro",
			Keys: []Digest{digest("right"), digest(strings.Repeat("k", maxKey))}}},
		Anonymous: "free",
	})
	for _, tc := range []struct {
		lines []string
		want  error
	}{
		{[]string{"Authorization: Bearer wrong"}, ErrUnknownKey},
		{[]string{"Authorization: Bearer Right"}, ErrUnknownKey},
		{[]string{"X-API-Key: wrong"}, ErrUnknownKey},
		{[]string{"X-API-Key: right", "Authorization: Bearer other"}, ErrTwoKeys},
		{[]string{"X-API-Key: right", "X-API-Key: other"}, ErrTwoKeys},
		{[]string{"Authorization: Bearer right", "Authorization: Bearer other"}, ErrTwoKeys},
		{[]string{"X-API-Key: "}, ErrMalformedKey},
		{[]string{"X-API-Key:    \t "}, ErrMalformedKey},
		{[]string{"X-API-Key: ", "Authorization: Bearer right"}, ErrMalformedKey},
		{[]string{"Authorization: "}, ErrMalformedKey},
		{[]string{"Authorization: Bearer"}, ErrMalformedKey},
		{[]string{"Authorization: Bearer   "}, ErrMalformedKey},
		{[]string{"Authorization: Bearer right right"}, ErrMalformedKey},
		{[]string{"X-API-Key: r\u00efght"}, ErrMalformedKey},
		{[]string{"X-API-Key: right\x00"}, ErrMalformedKey},
		{[]string{"Authorization: Basic cmlnaHQ="}, ErrUnknownScheme},
		{[]string{"Authorization: right"}, ErrUnknownScheme},
		{[]string{"Authorization: Bearer " + strings.Repeat("k", maxKey+1)}, ErrKeyTooLong},
		{[]string{"X-API-Key: " + strings.Repeat("k", 1<<20)}, ErrKeyTooLong},
	} {
		got, err := i.Identify(request("192.0.2.1:4711", tc.lines...))
		name := fmt.Sprintf("%.60q", tc.lines)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %+v, %v; want %v", name, got, err, tc.want)
			continue
		}
		if want := (Client{Address: "192.0.2.1"}); got != want {
			t.Errorf("%s: got %+v beside the error, want only the address", name, got)
		}
		if strings.Contains(err.Error(), "right") || strings.Contains(err.Error(), "kkk") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	longest := "X-API-Key: " + strings.Repeat("k", maxKey)
	if got, err := i.Identify(request("192.0.2.1:4711", longest)); err != nil || got.ID != "acme" {
		t.Errorf("a key of the greatest length: got %+v, %v", got, err)
	}
}

// C43: callers without a key are distinguished by address.
func TestCallersWithoutAKeyAreTheirAddress(t *testing.T) {
	t.Parallel()
	i := New(Config{Anonymous: "free"})
	for peer, network := range map[string]string{
		"192.0.2.1:4711":           "192.0.2.1",
		"192.0.2.2:4711":           "192.0.2.2",
		"[::ffff:192.0.2.3]:4711":  "192.0.2.3",
		"[2001:db8::1]:4711":       "2001:db8::/64",
		"[2001:db8:0:1::1]:4711":   "2001:db8:0:1::/64",
		"[fe80::1%eth0]:4711":      "fe80::/64",
		"@":                        "127.0.0.1",
		"/run/forebay/client.sock": "127.0.0.1",
	} {
		want := Client{ID: "ip:" + network, Tier: "free", Anonymous: true, Address: network}
		if got, err := i.Identify(request(peer)); err != nil || got != want {
			t.Errorf("peer %s: got %+v, %v; want %+v", peer, got, err, want)
		}
	}
}

// C43: callers without a key are refused unless a tier is named for them.
func TestAKeyIsRequiredUnlessATierIsNamedForCallersWithoutOne(t *testing.T) {
	t.Parallel()
	got, err := New(Config{}).Identify(request("[2001:db8::1]:4711"))
	if want := (Client{Address: "2001:db8::/64"}); !errors.Is(err, ErrNoKey) || got != want {
		t.Errorf("got %+v, %v; want %+v, %v", got, err, want, ErrNoKey)
	}
}

func TestAPeerWithoutAnAddressIsAnErrorEvenWithAKey(t *testing.T) {
	t.Parallel()
	i := New(Config{Clients: []Registered{{Name: "acme", Keys: []Digest{digest("right")}}},
		Anonymous: "free"})
	for _, peer := range []string{"pipe", "example.com:80", "192.0.2.1:http", "[2001:db8::1",
		"1.2.3.4.5:6"} {
		got, err := i.Identify(request(peer, "X-API-Key: right"))
		if !errors.Is(err, ErrNoAddress) || got != (Client{}) {
			t.Errorf("peer %q: got %+v, %v; want %v", peer, got, err, ErrNoAddress)
		}
	}
}

// C45: the whole key counts, to its last character and its case.
func TestKeysThatDifferOnlyAtTheEndOrInCaseAreDifferentClients(t *testing.T) {
	t.Parallel()
	prefix := strings.Repeat("fb_live_", 8)
	keys := []string{prefix + "a", prefix + "b", prefix + "A", strings.ToUpper(prefix) + "a"}
	var c Config
	for n, k := range keys {
		c.Clients = append(c.Clients,
			Registered{Name: fmt.Sprintf("client-%d", n), Keys: []Digest{digest(k)}})
	}
	i := New(c)
	for n, k := range keys {
		got, err := i.Identify(request("192.0.2.1:1", "X-API-Key: "+k))
		if want := fmt.Sprintf("client-%d", n); err != nil || got.ID != want {
			t.Errorf("key %d: got %+v, %v; want %s", n, got, err, want)
		}
	}
}

// Two digests with the same first bytes are two keys: the index of the map decides nothing.
func TestTheWholeDigestIsCompared(t *testing.T) {
	t.Parallel()
	near, right := digest("right"), digest("right")
	near[31] ^= 1
	i := New(Config{Clients: []Registered{{Name: "near", Keys: []Digest{near}},
		{Name: "far", Keys: []Digest{{}}}}})
	got, err := i.Identify(request("192.0.2.1:1", "X-API-Key: right"))
	if !errors.Is(err, ErrUnknownKey) {
		t.Errorf("got %+v, %v; want %v", got, err, ErrUnknownKey)
	}
	i = New(Config{Clients: []Registered{{Name: "near", Keys: []Digest{near}},
		{Name: "true", Keys: []Digest{right}}}})
	if got, err := i.Identify(request("192.0.2.1:1", "X-API-Key: right")); err != nil ||
		got.ID != "true" {
		t.Errorf("got %+v, %v; want client true", got, err)
	}
}

// C47: ids of different kinds never collide, even if a client is named like an address.
func TestIDsOfKeyedAndAnonymousClientsNeverCollide(t *testing.T) {
	t.Parallel()
	i := New(Config{
		Clients: []Registered{{Name: "ip", Keys: []Digest{digest("a")}},
			{Name: "ip-192-0-2-1", Keys: []Digest{digest("b")}}},
		Anonymous: "free",
	})
	seen := map[string]string{}
	for _, r := range []*http.Request{
		request("192.0.2.1:1", "X-API-Key: a"),
		request("192.0.2.1:1", "X-API-Key: b"),
		request("192.0.2.1:1"),
		request("192.0.2.11:1"),
		request("[2001:db8:1::1]:1"),
		request("[2001:db8:11::1]:1"),
	} {
		c, err := i.Identify(r)
		if err != nil {
			t.Fatal(err)
		}
		caller := fmt.Sprint(r.RemoteAddr, r.Header)
		if other, ok := seen[c.ID]; ok {
			t.Errorf("%s and %s are both %q", caller, other, c.ID)
		}
		seen[c.ID] = caller
	}
}

// C41: one user owns at least a /64, so all its addresses are one caller.
func TestAllAddressesOfAnIPv6NetworkAreOneCaller(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		bits    int
		network string
		others  []string
	}{
		{0, "2001:db8:aa:bb00::/64", []string{"2001:db8:aa:bb01::1"}},
		{64, "2001:db8:aa:bb00::/64", []string{"2001:db8:aa:bb01::1"}},
		{56, "2001:db8:aa:bb00::/56", []string{"2001:db8:aa:bc00::1"}},
		{128, "2001:db8:aa:bb00::1/128", []string{"2001:db8:aa:bb00::2"}},
	} {
		i := New(Config{Anonymous: "free", IPv6Prefix: tc.bits})
		p := netip.MustParsePrefix(tc.network)
		for n := range 50 {
			host := p.Addr().As16()
			if tc.bits < 128 {
				host[15], host[9] = byte(n), byte(7*n)
			}
			got, err := i.Identify(request(fmt.Sprintf("[%s]:%d", netip.AddrFrom16(host), 1000+n)))
			if want := tc.network; err != nil || got.Address != want || got.ID != "ip:"+want {
				t.Fatalf("/%d: %s is %+v, %v; want %s",
					tc.bits, netip.AddrFrom16(host), got, err, want)
			}
		}
		for _, other := range tc.others {
			if got, err := i.Identify(request("[" + other + "]:1")); err != nil ||
				got.Address == tc.network {
				t.Errorf("/%d: %s is %+v, %v; want another caller than %s",
					tc.bits, other, got, err, tc.network)
			}
		}
	}
}
