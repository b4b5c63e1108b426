package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/identity"
)

// Answers that are made of the same bytes take them once, and a first answer finds room however
// large it is. A client with a key may take a quarter, and no number of addresses more than half.
func TestUnreadBytesByTheirClients(t *testing.T) {
	t.Parallel()
	u := newUnread(unreadBounds(1600), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	keyed := func(name string) identity.Client { return identity.Client{ID: name} }
	address := func(text string) identity.Client {
		return identity.Client{ID: "ip:" + text, Anonymous: true, Address: text}
	}
	var frees []func()
	hold := func(c identity.Client, body []byte, n int) func() {
		t.Helper()
		free, err := u.reserve(c, body, n)
		if err != nil {
			t.Fatal(err)
		}
		frees = append(frees, free)
		return free
	}
	refused := func(status int, c identity.Client, body []byte, n int) {
		t.Helper()
		var p *api.Problem
		if _, err := u.reserve(c, body, n); !errors.As(err, &p) || p.Status != status {
			t.Errorf("%s holds %d more: %v, want %d", c.ID, n, err, status)
		}
	}
	held := func(name string, want int) {
		t.Helper()
		if got := u.under(name); got != want {
			t.Errorf("%q holds %d, want %d", name, got, want)
		}
	}
	a, b, body := keyed("a"), keyed("b"), make([]byte, 300)
	first, second := hold(a, body, 300), hold(a, body, 300)
	hold(b, body, 300)
	hold(b, nil, 100)
	held(everyone, 400)
	held("a", 300)
	held("b", 400)
	refused(http.StatusTooManyRequests, a, make([]byte, 101), 101)
	refused(http.StatusTooManyRequests, b, nil, 1)
	first()
	held("a", 300)
	second()
	held("a", 0)
	held(everyone, 400) // b still reads them
	frees = frees[2:]

	hold(address("192.0.2.1"), nil, 100)
	refused(http.StatusTooManyRequests, address("192.0.2.1"), nil, 1)
	hold(address("192.0.2.2"), nil, 100)
	refused(http.StatusTooManyRequests, address("192.0.2.3"), nil, 1) // of the same network
	for _, one := range []string{"198.51.100.1", "198.51.100.2", "203.0.113.1", "203.0.113.2",
		"2001:db8:1:1::/64", "2001:db8:1:2::/64"} {
		hold(address(one), nil, 100)
	}
	refused(http.StatusTooManyRequests, address("2001:db8:2::/64"), nil, 1) // addresses have half
	held(everyone, 1200)
	hold(a, nil, 400)
	refused(http.StatusServiceUnavailable, keyed("c"), nil, 1)
	for _, free := range frees {
		free()
	}
	if len(u.bytes) != 0 || len(u.readers) != 0 {
		t.Errorf("left: %v, %v", u.bytes, u.readers)
	}
	hold(a, nil, 5000)() // more than all may have: the only one
	held(everyone, 0)
}
