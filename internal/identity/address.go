package identity

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
)

// ErrNoAddress reports that the connection has no address to identify a caller by.
var ErrNoAddress = errors.New("the connection has no usable peer address")

// loopback stands for the peer of a Unix socket: a process on this host.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Address returns the address of the caller, with IPv4-mapped forms unmapped and without a zone.
//
// A peer outside the trusted proxies is the caller, whatever its headers. Behind a trusted peer,
// all lines of the configured header form one list, to which each proxy appended an entry. The list
// is read from the right: trusted entries are skipped, and the first other one is the caller.
// Entries to the left of it were sent by the caller and are never read. Empty entries are skipped
// (RFC 9110, section 5.6.1.2). Any other malformed entry ends the walk at the last trusted address,
// since entries to its left can't be trusted.
//
// The peer of a Unix socket counts as 127.0.0.1. Any other peer without an address is ErrNoAddress.
func (i *Identifier) Address(r *http.Request) (netip.Addr, error) {
	addr, _, err := i.address(r)
	return addr, err
}

// address is Address, and reports whether the connection's peer is a trusted proxy.
func (i *Identifier) address(r *http.Request) (addr netip.Addr, proxied bool, err error) {
	last, ok := peer(r.RemoteAddr)
	if !ok {
		return netip.Addr{}, false, ErrNoAddress
	}
	if !i.trusts(last) {
		if i.untrusted != nil && len(r.Header[i.header]) > 0 &&
			(last.IsPrivate() || last.IsLoopback()) {
			i.untrusted(last, i.header)
		}
		return last, false, nil
	}
	lines := r.Header[i.header]
	for n := len(lines) - 1; n >= 0; n-- {
		for rest, more := lines[n], true; more; {
			var entry string
			rest, entry, more = lastEntry(rest, i.forwarded)
			if strings.Trim(entry, " \t") == "" {
				continue
			}
			if i.forwarded {
				entry = forwardedFor(entry)
			}
			addr, ok := node(entry)
			if !ok {
				return last, true, nil
			}
			if !i.trusts(addr) {
				return addr, true, nil
			}
			last = addr
		}
	}
	return last, true, nil
}

// FromProxy reports whether the request comes from a trusted proxy, whose header fields can be
// believed.
func (i *Identifier) FromProxy(r *http.Request) bool {
	at, ok := peer(r.RemoteAddr)
	return ok && i.trusts(at)
}

// network returns the text by which a caller is counted: an IPv4 address, or an IPv6 network.
func (i *Identifier) network(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(i.bits) // the config's bounds keep bits within 128
	return p.String()
}

func (i *Identifier) trusts(a netip.Addr) bool {
	for _, p := range i.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// peer parses http.Request.RemoteAddr. For a Unix socket's peer, Go sets it to "@", to its path, or
// to "".
func peer(remote string) (netip.Addr, bool) {
	if remote == "" || remote[0] == '@' || remote[0] == '/' {
		return loopback, true
	}
	return node(remote)
}

// lastEntry cuts the rightmost entry off a comma-separated list. more is false if that was the
// whole list. In quoted text (RFC 9110, section 5.6.4) a comma is no separator. Quotes are matched
// from the right too: what a trusted proxy appended is well-formed, so a stray quote that the
// caller put on the left can't swallow it.
func lastEntry(list string, quotes bool) (rest, entry string, more bool) {
	inside := false
	for n := len(list) - 1; n >= 0; n-- {
		switch list[n] {
		case '"':
			if quotes && !escaped(list, n) {
				inside = !inside
			}
		case ',':
			if !inside {
				return list[:n], list[n+1:], true
			}
		}
	}
	return "", list, false
}

// escaped reports whether s[n] follows an odd number of backslashes.
func escaped(s string, n int) bool {
	before := len(s[:n]) - len(strings.TrimRight(s[:n], `\`))
	return before%2 == 1
}

// forwardedFor returns the value of the one "for" of a Forwarded element, unquoted. It returns ""
// if the element has none or two, or is malformed.
func forwardedFor(element string) string {
	value, seen := "", false
	for rest, more := element, true; more; {
		var pair string
		rest, pair, more = cutPair(rest)
		name, v, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !ok {
			return ""
		}
		v, ok = unquote(v)
		if !ok {
			return ""
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return ""
			}
			value, seen = v, true
		}
	}
	return value
}

// cutPair cuts the first name=value pair off a Forwarded element, at a semicolon outside quotes.
func cutPair(element string) (rest, pair string, more bool) {
	inside := false
	for n := 0; n < len(element); n++ {
		switch element[n] {
		case '\\':
			if inside {
				n++
			}
		case '"':
			inside = !inside
		case ';':
			if !inside {
				return element[n+1:], element[:n], true
			}
		}
	}
	return "", element, false
}

// unquote returns the text of a quoted string. A value without quotes is returned as it is.
func unquote(v string) (string, bool) {
	if !strings.HasPrefix(v, `"`) {
		return v, !strings.Contains(v, `"`)
	}
	var text strings.Builder
	for n := 1; n < len(v); n++ {
		switch v[n] {
		case '"':
			return text.String(), n == len(v)-1
		case '\\':
			if n++; n == len(v) {
				return "", false
			}
		}
		text.WriteByte(v[n])
	}
	return "", false
}

// node parses one address as proxies write it: 192.0.2.1, 192.0.2.1:4711, 2001:db8::1,
// [2001:db8::1] or [2001:db8::1]:4711. RFC 7239's "unknown" and "_name" are not addresses.
func node(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	host := s
	if inner, ok := strings.CutPrefix(s, "["); ok {
		h, port, ok := strings.Cut(inner, "]")
		if !ok || !strings.Contains(h, ":") || port != "" && (port[0] != ':' || !isPort(port[1:])) {
			return netip.Addr{}, false
		}
		host = h
	} else if h, port, ok := strings.Cut(s, ":"); ok && strings.Contains(h, ".") {
		if !isPort(port) {
			return netip.Addr{}, false
		}
		host = h
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap().WithZone(""), true
}

// isPort accepts a number, and RFC 7239's obfuscated form: "_" and a name. Only the address beside
// it matters.
func isPort(s string) bool {
	if name, ok := strings.CutPrefix(s, "_"); ok {
		return name != ""
	}
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

// unmap returns a network in the form of the addresses that it is compared with.
func unmap(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}
