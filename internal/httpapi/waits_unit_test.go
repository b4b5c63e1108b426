package httpapi

import (
	"fmt"
	"testing"

	"github.com/forebay/forebay/internal/identity"
)

// The bounds in force are those that are documented: a client with a key takes a quarter, and no
// number of addresses takes more than half.
func TestAClientMayHoldAQuarterAndAllAddressesHalf(t *testing.T) {
	t.Parallel()
	w := newWaits(maxHeld)
	fill := func(c identity.Client, want int) {
		t.Helper()
		n := 0
		for ; ; n++ {
			if _, ok := w.enter(heldStream, c); !ok {
				break
			}
		}
		if n != want {
			t.Errorf("%s holds %d, want %d", c.ID, n, want)
		}
	}
	anonymous := func(address string) identity.Client {
		return identity.Client{ID: "ip:" + address, Anonymous: true, Address: address}
	}
	fill(anonymous("2001:db8:1:1::/64"), 250)
	fill(anonymous("2001:db8:1:2::/64"), 250)
	fill(anonymous("2001:db8:1:3::/64"), 0) // of the same /48
	fill(anonymous("192.0.2.1"), 250)
	fill(anonymous("192.0.2.254"), 250)
	fill(anonymous("192.0.2.77"), 0)
	for n := range 8 {
		for host := range 2 {
			fill(anonymous(fmt.Sprintf("198.51.%d.%d", n, host)), 250)
		}
	}
	fill(anonymous("203.0.113.1"), 0)
	fill(identity.Client{ID: "acme"}, 2500)
	fill(identity.Client{ID: "globex"}, 2500)
	fill(identity.Client{ID: "initech"}, 0)
}
