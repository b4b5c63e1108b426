package webhook

import (
	"strconv"
	"testing"
)

// One host has 20 places and one client 100, however many hosts it names; who finds none comes again the later the more there are.
func TestPlacesAreBoundedByHostAndByClient(t *testing.T) {
	t.Parallel()
	p := newPlaces()
	var leave []func()
	take := func(host, client string) bool {
		t.Helper()
		f, wait := p.take(host, client)
		if (f == nil) == (wait == 0) || f == nil && (wait < minPutOff || wait > maxPutOff) {
			t.Fatalf("%s for %s: put off %v, a place: %v", host, client, wait, f != nil)
		}
		if f != nil {
			leave = append(leave, f)
		}
		return f != nil
	}
	for n := range maxPerHost + 5 {
		if got := take("x", "acme"); got != (n < maxPerHost) {
			t.Fatalf("delivery %d to one host: %v", n+1, got)
		}
	}
	for n := range maxPerClient {
		if got := take("host"+strconv.Itoa(n), "acme"); got != (n < maxPerClient-maxPerHost) {
			t.Fatalf("delivery %d to another host: %v", n+1, got)
		}
	}
	if !take("y", "globex") {
		t.Error("another client finds no place")
	}
	_, first := p.take("x", "globex")
	for range 100 * maxPerHost {
		p.take("x", "globex")
	}
	if _, last := p.take("x", "globex"); last != maxPutOff || first >= last {
		t.Errorf("put off %v at first and %v among thousands", first, last)
	}
	for _, f := range leave {
		f()
	}
	if len(p.taken) != 0 {
		t.Errorf("%d names are still known", len(p.taken))
	}
	if !take("x", "acme") {
		t.Error("a place that came free isn't given again")
	}
}
