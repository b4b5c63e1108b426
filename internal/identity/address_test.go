package identity

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	xff       = "X-Forwarded-For"
	forwarded = "Forwarded"
)

// behind returns an Identifier with proxies at 10.0.0.0/8 and 2001:db8:10::/48.
func behind(header string) *Identifier {
	return New(Config{
		Anonymous: "free",
		Header:    header,
		TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:10::/48"),
		},
	})
}

func TestTheAddressIsTheRightmostThatNoTrustedProxyHas(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, peer, header string
		lines              []string
		want               string
	}{
		{"peer not trusted", "192.0.2.9:1", xff, []string{"198.51.100.1"}, "192.0.2.9"},
		{"peer not trusted, v6", "[2001:db8:11::1]:1", xff, []string{"198.51.100.1"},
			"2001:db8:11::1"},
		{"no header", "10.0.0.1:1", xff, nil, "10.0.0.1"},
		{"mapped peer is trusted as v4", "[::ffff:10.0.0.1]:1", xff, []string{"198.51.100.1"},
			"198.51.100.1"},
		{"trusted v6 peer with zone", "[2001:db8:10::1%eth0]:1", xff, []string{"198.51.100.1"},
			"198.51.100.1"},
		{"one entry", "10.0.0.1:1", xff, []string{"198.51.100.1"}, "198.51.100.1"},
		{"left ones are ignored", "10.0.0.1:1", xff, []string{"6.6.6.6, 198.51.100.1"},
			"198.51.100.1"},
		{"trusted ones are skipped", "10.0.0.1:1", xff,
			[]string{"6.6.6.6,198.51.100.1 ,\t10.0.0.3,10.0.0.2"}, "198.51.100.1"},
		{"all lines are one list", "10.0.0.1:1", xff,
			[]string{"6.6.6.6", "198.51.100.1", "10.0.0.3, 10.0.0.2"}, "198.51.100.1"},
		{"all are trusted", "10.0.0.1:1", xff, []string{"10.0.0.4", "10.0.0.3,10.0.0.2"},
			"10.0.0.4"},
		{"mapped entry", "10.0.0.1:1", xff, []string{"::ffff:198.51.100.1, ::ffff:10.0.0.2"},
			"198.51.100.1"},
		{"v6 entry", "10.0.0.1:1", xff, []string{"2001:db8::7, 2001:db8:10::2"}, "2001:db8::7"},
		{"v6 with zone", "10.0.0.1:1", xff, []string{"fe80::7%eth0"}, "fe80::7"},
		{"ports and brackets", "10.0.0.1:1", xff,
			[]string{"198.51.100.1:80, [2001:db8:10::2]:4711, [2001:db8:10::3]"}, "198.51.100.1"},
		{"unreadable stops", "10.0.0.1:1", xff, []string{"198.51.100.1, unknown, 10.0.0.2"},
			"10.0.0.2"},
		{"unreadable at the right", "10.0.0.1:1", xff, []string{"198.51.100.1, example.com"},
			"10.0.0.1"},
		{"C40: empty entry", "10.0.0.1:1", xff, []string{"6.6.6.6, 198.51.100.1,, 10.0.0.2"},
			"198.51.100.1"},
		{"C40: empty at the end", "10.0.0.1:1", xff, []string{"198.51.100.1,"}, "198.51.100.1"},
		{"C40: blank at the end", "10.0.0.1:1", xff, []string{"198.51.100.1, \t"}, "198.51.100.1"},
		{"C40: empty line", "10.0.0.1:1", xff, []string{"198.51.100.1", "", "10.0.0.2", ""},
			"198.51.100.1"},
		{"C40: all empty", "10.0.0.1:1", xff, []string{",", "", " , "}, "10.0.0.1"},
		{"bad port stops", "10.0.0.1:1", xff, []string{"198.51.100.1:http"}, "10.0.0.1"},
		{"octal is no address", "10.0.0.1:1", xff, []string{"0300.0.2.1"}, "10.0.0.1"},
		{"a quote is no syntax here", "10.0.0.1:1", xff, []string{`"6.6.6.6, 198.51.100.1`},
			"198.51.100.1"},

		{"token", "10.0.0.1:1", forwarded, []string{"for=198.51.100.1"}, "198.51.100.1"},
		{"any case, any order", "10.0.0.1:1", forwarded,
			[]string{`proto=https ;By=10.0.0.1; FOR=198.51.100.1`}, "198.51.100.1"},
		{"quoted v6 with port", "10.0.0.1:1", forwarded, []string{`for="[2001:db8:cafe::17]:4711"`},
			"2001:db8:cafe::17"},
		{"obfuscated port", "10.0.0.1:1", forwarded, []string{`for="198.51.100.1:_a.b"`},
			"198.51.100.1"},
		{"escapes", "10.0.0.1:1", forwarded, []string{`for="198\.51.100.1";host="a\"b,c;d"`},
			"198.51.100.1"},
		{"comma and semicolon in quotes", "10.0.0.1:1", forwarded,
			[]string{`for=6.6.6.6, for=198.51.100.1;host="a, for=7.7.7.7;for=8.8.8.8", for=10.0.0.2`}, "198.51.100.1"},
		{"lines", "10.0.0.1:1", forwarded, []string{"for=6.6.6.6", "for=198.51.100.1",
			`for=10.0.0.3;proto=http, for="[2001:db8:10::1]"`}, "198.51.100.1"},
		{"hidden", "10.0.0.1:1", forwarded, []string{"for=198.51.100.1, for=_hidden, for=10.0.0.2"},
			"10.0.0.2"},
		{"C40: empty element", "10.0.0.1:1", forwarded,
			[]string{"for=6.6.6.6, for=198.51.100.1, ,for=10.0.0.2,", ""}, "198.51.100.1"},
		{"C40: no pair is no empty element", "10.0.0.1:1", forwarded,
			[]string{"for=198.51.100.1, ;"}, "10.0.0.1"},
		{"unknown", "10.0.0.1:1", forwarded, []string{"for=198.51.100.1, for=unknown"}, "10.0.0.1"},
		{"no for", "10.0.0.1:1", forwarded, []string{"for=198.51.100.1, by=10.0.0.2"}, "10.0.0.1"},
		{"two for", "10.0.0.1:1", forwarded, []string{"for=198.51.100.1;for=10.0.0.2"}, "10.0.0.1"},
		{"no name", "10.0.0.1:1", forwarded, []string{"198.51.100.1"}, "10.0.0.1"},
		{"open quote", "10.0.0.1:1", forwarded, []string{`for="198.51.100.1`}, "10.0.0.1"},
		{"junk after the quote", "10.0.0.1:1", forwarded, []string{`for="198.51.100.1"x`},
			"10.0.0.1"},
		{"quote inside a token", "10.0.0.1:1", forwarded, []string{`for=198.51.100.1"";a=b`},
			"10.0.0.1"},
		{"backslash at the end", "10.0.0.1:1", forwarded, []string{`for="198.51.100.1\`},
			"10.0.0.1"},
		{"the caller's open quote", "10.0.0.1:1", forwarded,
			[]string{`for=10.0.0.9;x=", for=198.51.100.1;host="a"`}, "198.51.100.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := request(tc.peer)
			r.Header[tc.header] = tc.lines
			got, err := behind(tc.header).Address(r)
			if err != nil || got.String() != tc.want {
				t.Errorf("got %v, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// A proxy on a private address that isn't trusted is most likely missing from the config.
func TestAnUntrustedPrivatePeerThatNamesCallersIsReported(t *testing.T) {
	t.Parallel()
	var reported []string
	i := New(Config{Anonymous: "free",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Untrusted: func(peer netip.Addr, header string) {
			reported = append(reported, peer.String()+" "+header)
		}})
	for _, peer := range []string{"10.0.0.1:1", "172.16.0.1:1", "[fd00::1]:1", "127.0.0.1:1", "@",
		"198.51.100.1:1"} {
		for _, lines := range [][]string{nil, {"X-Forwarded-For: 203.0.113.1"},
			{"Forwarded: for=203.0.113.1"}} {
			if _, err := i.Identify(request(peer, lines...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := "172.16.0.1 X-Forwarded-For, fd00::1 X-Forwarded-For, " +
		"127.0.0.1 X-Forwarded-For, 127.0.0.1 X-Forwarded-For"
	if got := strings.Join(reported, ", "); got != want {
		t.Errorf("reported %s, want %s", got, want)
	}
}

func TestOnlyTheOneConfiguredHeaderIsRead(t *testing.T) {
	t.Parallel()
	lines := []string{"X-Forwarded-For: 198.51.100.1", "Forwarded: for=198.51.100.2",
		"X-Real-IP: 198.51.100.3", "True-Client-IP: 198.51.100.4", "CF-Connecting-IP: 198.51.100.5"}
	for header, want := range map[string]string{"": "198.51.100.1",
		"x-forwarded-for": "198.51.100.1", "forwarded": "198.51.100.2"} {
		if got, err := behind(header).Address(request("10.0.0.1:1", lines...)); err != nil ||
			got.String() != want {
			t.Errorf("header %q: got %v, %v; want %s", header, got, err, want)
		}
	}
}

func TestATrustedNetworkMayBeWrittenIPv4Mapped(t *testing.T) {
	t.Parallel()
	i := New(Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}})
	if got, err := i.Address(request("10.0.0.1:1", "X-Forwarded-For: 198.51.100.1")); err != nil ||
		got.String() != "198.51.100.1" {
		t.Errorf("got %v, %v; want 198.51.100.1", got, err)
	}
}

// C38: inventing addresses makes a caller neither a new one nor another one.
func TestInventedEntriesChangeNothing(t *testing.T) {
	t.Parallel()
	const victim = "203.0.113.50"
	for _, tc := range []struct {
		name, peer, appended string
	}{
		{"no proxy", "198.51.100.1:1", ""},
		{"one trusted hop", "10.0.0.1:1", ", 198.51.100.1"},
	} {
		for n := range 20 {
			r := request(tc.peer, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d, %s%s",
				n, victim, tc.appended))
			if got, err := behind(xff).Identify(r); err != nil || got.ID != "ip:198.51.100.1" {
				t.Fatalf("%s, request %d: got %+v, %v; want ip:198.51.100.1", tc.name, n, got, err)
			}
		}
	}
	got, err := behind(xff).Identify(request("10.0.0.1:1", "X-Forwarded-For: "+victim))
	if err != nil || got.ID != "ip:"+victim {
		t.Errorf("the victim itself: got %+v, %v", got, err)
	}
}

// spelling returns an address as a proxy might write it, in the syntax of the header.
func spelling(t *rapid.T, header string, a netip.Addr) string {
	text := a.String()
	port := rapid.SampledFrom([]string{"", ":1", ":65535"}).Draw(t, "port")
	if a.Is6() && (header == forwarded || port != "") {
		text = "[" + text + "]"
	}
	text += port
	if header == xff {
		return rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "space") + text
	}
	if strings.Contains(text, ":") || rapid.Bool().Draw(t, "quoted") {
		text = `"` + text + `"`
	}
	element := rapid.SampledFrom([]string{"for=%s", " For=%s;proto=https",
		`host="a,b;c\"d\\";for=%s`, `by="[2001:db8:10::9]"; for=%s`}).Draw(t, "element")
	return fmt.Sprintf(element, text)
}

// Well-formed lists of any length, in any spelling and split into lines anywhere, mean the same as
// the plain list of addresses.
func TestEverySpellingOfAListMeansTheSame(t *testing.T) {
	t.Parallel()
	addresses := []netip.Addr{}
	for _, a := range []string{"10.0.0.2", "10.9.9.9", "2001:db8:10::5", "198.51.100.1",
		"203.0.113.77", "2001:db8::7"} {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.SampledFrom([]string{xff, forwarded}).Draw(t, "header")
		i := behind(header)
		list := rapid.SliceOfN(rapid.SampledFrom(addresses), 0, 8).Draw(t, "list")
		r := request("10.0.0.1:1")
		want := netip.MustParseAddr("10.0.0.1")
		for n, a := range list {
			entry := spelling(t, header, a)
			if last := len(r.Header[header]) - 1; n > 0 && rapid.Bool().Draw(t, "same line") {
				r.Header[header][last] += "," + entry
			} else {
				r.Header.Add(header, entry)
			}
		}
		for n := len(list) - 1; n >= 0 && i.trusts(want); n-- {
			want = list[n]
		}
		if got, err := i.Address(r); err != nil || got != want {
			t.Fatalf("%q: got %v, %v; want %v", r.Header[header], got, err, want)
		}
	})
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"", "198.51.100.1", "a, 10.0.0.2", `for="[2001:db8::1]:80";by=_x`,
		`for="a\`, `x=",`, `"\\\"`, "[::1", "::ffff:1.2.3.4%z", ",,,"} {
		f.Add(s, "")
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, header := range []string{xff, forwarded} {
			i := behind(header)
			address := func(lines ...string) netip.Addr {
				a, err := i.Address(&http.Request{RemoteAddr: "10.0.0.1:1",
					Header: http.Header{header: lines}})
				if err != nil || !a.IsValid() || a.Is4In6() || a.Zone() != "" {
					t.Fatalf("%s %q: got %v, %v", header, lines, a, err)
				}
				return a
			}
			address(one)
			address(one, two)

			// Whatever the caller sends, only the trusted proxy's entry counts.
			entry, want := "198.51.100.1", "198.51.100.1"
			if header == forwarded {
				entry, want = `for="[2001:db8::7]:4711";proto=http;host="a,b"`, "2001:db8::7"
			}
			for _, lines := range [][]string{{one + ", " + entry}, {one, two + "," + entry},
				{one, two, entry}} {
				if got := address(lines...); got.String() != want {
					t.Fatalf("%s %q: got %v, want %s", header, lines, got, want)
				}
			}
		}
	})
}

func FuzzCredentials(f *testing.F) {
	for _, s := range []string{"", "Bearer right", "bearer  x", "Basic x", "Bearer",
		strings.Repeat("k", maxKey+1)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		for _, h := range []http.Header{{"Authorization": {authorization}}, {"X-Api-Key": {apiKey}},
			{"Authorization": {authorization}, "X-Api-Key": {apiKey}}} {
			key, presented, err := credentials(h)
			if err == nil && (!presented || checkKey(key) != nil) {
				t.Fatalf("%q: a request with credentials came out as key %q, presented %v",
					h, key, presented)
			}
		}
	})
}
