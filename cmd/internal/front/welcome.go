package front

import (
	"fmt"
	"io"
	"net"
)

// welcome prints what a start without a config runs, and what to try.
func welcome(w io.Writer, public, admin string) {
	base := "http://" + reachable(public)
	fmt.Fprintf(w, `
Forebay, trying out: no config was given, so Redis, the worker and a demo backend run inside this process.
Nothing is kept: all jobs and results are gone when it ends.

The demo backend is fragile: each call takes 300 ms, and above 3 calls in any second it answers 503.
  report     drains at 2/s; its line holds 20; when overloaded, the last good answer is served, up to 1 h old
  thumbnail  drains at 1/s; its line holds 5; when overloaded, the answer is 429

Submit a job, and see where it stands:
  curl -i %[1]s/v1/jobs -H 'Content-Type: application/json' -d '{"operation":"report","payload":{"month":"2026-11"}}'
  curl -s %[1]s/v1/jobs/JOB_ID
  curl -s %[1]s/v1/jobs/JOB_ID/result

Flood it: first 202s, then the line is full and the stale answer comes back at once (429 where there is none):
  for i in $(seq 30); do curl -s -o /dev/null -w '%%{http_code} ' %[1]s/v1/jobs -H 'Content-Type: application/json' -d '{"operation":"report","payload":{"month":"2026-11"}}'; done; echo

What is left of your limits, and turning the drain, live:
  curl -s %[1]s/v1/rate-limits
  curl -s http://%[2]s/admin/v1/backends
  curl -s -X PATCH http://%[2]s/admin/v1/backends/reports -H 'Content-Type: application/json' -d '{"rate":"1/s"}'

The contract is at %[1]s/openapi.yaml, metrics are at http://%[2]s/metrics. Stop with Ctrl-C.
`, base, reachable(admin))
}

// reachable returns an address that a client on this machine can use. A listener on all addresses
// has none of its own.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
