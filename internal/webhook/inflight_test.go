package webhook

import (
	"strconv"
	"testing"
)

// A process has at most 20 deliveries to one host and 100 for one client in flight, however many
// hosts the client names. The more deliveries are put off, the longer they are.
func TestDeliveriesInFlightAreBoundedByHostAndByClient(t *testing.T) {
	t.Parallel()
	p := newInFlight()
	var ends []func()
	begin := func(host, client string) bool {
		t.Helper()
		f, wait := p.begin(host, client)
		if (f == nil) == (wait == 0) || f == nil && (wait < minPutOff || wait > maxPutOff) {
			t.Fatalf("%s for %s: put off %v, begun: %v", host, client, wait, f != nil)
		}
		if f != nil {
			ends = append(ends, f)
		}
		return f != nil
	}
	for n := range maxPerHost + 5 {
		if got := begin("x", "acme"); got != (n < maxPerHost) {
			t.Fatalf("delivery %d to one host: %v", n+1, got)
		}
	}
	for n := range maxPerClient {
		if got := begin("host"+strconv.Itoa(n), "acme"); got != (n < maxPerClient-maxPerHost) {
			t.Fatalf("delivery %d to another host: %v", n+1, got)
		}
	}
	if !begin("y", "globex") {
		t.Error("a delivery for another client is put off")
	}
	_, first := p.begin("x", "globex")
	for range 100 * maxPerHost {
		p.begin("x", "globex")
	}
	if _, last := p.begin("x", "globex"); last != maxPutOff || first >= last {
		t.Errorf("put off %v at first and %v among thousands", first, last)
	}
	for _, f := range ends {
		f()
	}
	if len(p.counts) != 0 {
		t.Errorf("%d names are still known", len(p.counts))
	}
	if !begin("x", "acme") {
		t.Error("a delivery is put off after all others have ended")
	}
}
