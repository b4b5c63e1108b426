package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/api"
)

// drainTime bounds how long a healthy system takes for the leftovers of chaos: full lines, a closed
// gate, leases.
const drainTime = 90 * time.Second

// operate calls the admin API; status 0 means no answer.
func (w *world) operate(site, method, path, body string) (status int, answer []byte) {
	_, base := w.sites[site].urls()
	req, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		w.t.Errorf("%s %s: %v", method, path, err)
		return 0, nil
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := w.http.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(res.Body); err != nil {
		return 0, nil
	}
	return res.StatusCode, answer
}

// tune changes a backend's settings. If the present ones aren't known, because no answer came, only
// a reset makes them known again.
func (w *world) tune(backend string, e event) {
	next, known := w.drains[backend].latest()
	if !known {
		e.kind = "reset"
	}
	body := ""
	switch e.kind {
	case "rate":
		next.rate, body = e.size, fmt.Sprintf(`{"rate":"%g/s"}`, e.size)
	case "burst":
		next.burst, body = int(e.size), fmt.Sprintf(`{"burst":%g}`, e.size)
	case "concurrency":
		next.concurrency, body = int(e.size), fmt.Sprintf(`{"concurrency":%g}`, e.size)
	case "pause":
		next.paused, body = true, `{"paused":true}`
	case "feedback off":
		body = `{"feedback":"off"}` // the bounds stay: feedback can only lower them
	case "reset":
		next = configured[backend]
	}
	if w.insist(backend, next, body) && e.kind == "pause" {
		time.Sleep(e.lasts)
		next.paused = false
		w.insist(backend, next, `{"paused":false}`)
	}
}

// insist requests settings until they are confirmed, like an operator, but not for ever.
func (w *world) insist(backend string, next setting, body string) bool {
	for range 30 {
		if w.change(backend, next, body) {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// change requests settings: a PATCH with body or, without one, a DELETE of the tuned settings.
func (w *world) change(backend string, next setting, body string) bool {
	method, path := http.MethodPatch, "/admin/v1/backends/"+backend
	if body == "" {
		method, path = http.MethodDelete, path+"/override"
	}
	done := w.drains[backend].ask(next)
	status, answer := w.operate(apis[w.asked.Add(1)%int64(len(apis))], method, path, body)
	switch status {
	case http.StatusOK:
		done()
		return true
	case 0, http.StatusServiceUnavailable:
	default:
		w.t.Errorf("%s: %s %s %s was answered %d: %s",
			w.since(time.Now()), method, path, body, status, answer)
	}
	return false
}

// recover ends all faults and waits until all accepted jobs have ended.
func (w *world) recover() {
	w.t.Logf("%s: all is well from now on", w.since(time.Now()))
	for _, name := range apis {
		w.until("it is ready", startTime, func() bool {
			base, _ := w.sites[name].urls()
			res, err := w.http.Get(base + "/readyz")
			if err != nil {
				return false
			}
			res.Body.Close()
			return res.StatusCode == http.StatusOK
		})
	}
	for _, name := range backends {
		// First back to the file's settings, which are known. Then faster ones, without feedback,
		// whose effective rate would take a minute to recover.
		w.until("its settings are reset", startTime, func() bool {
			return w.change(name, configured[name], "")
		})
		fast := configured[name]
		fast.rate, fast.concurrency = 100, 20
		const body = `{"rate":"100/s","concurrency":20,"feedback":"off"}`
		w.until("its settings are fast", startTime, func() bool {
			return w.change(name, fast, body)
		})
	}
	w.crowd.makeSure()
	w.until("all is drained", drainTime, func() bool {
		for _, name := range backends {
			b, ok := w.backend(name)
			if !ok || b.Waiting+b.Delayed+b.InFlight > 0 {
				return false
			}
		}
		return true
	})
	w.t.Logf("%s: drained", w.since(time.Now()))
}

// backend returns a backend's state from the admin API.
func (w *world) backend(name string) (b api.Backend, ok bool) {
	status, answer := w.operate(apis[0], http.MethodGet, "/admin/v1/backends/"+name, "")
	if status != http.StatusOK {
		return b, false
	}
	if err := json.Unmarshal(answer, &b); err != nil {
		w.t.Errorf("the admin API on %s: %v: %s", name, err, answer)
	}
	return b, true
}

// until waits for a condition that must hold within most.
func (w *world) until(name string, most time.Duration, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(most); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, backend := range backends {
				b, _ := w.backend(backend)
				w.t.Logf("%+v", b)
			}
			w.t.Fatalf("%s: not within %v: %s", w.since(time.Now()), most, name)
		}
	}
}

// mustRead decodes an answer.
func mustRead(t testing.TB, answer []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
}
