package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/forebay/forebay/bench/load"
)

// forebay is the running service: one api, and any number of workers.
type forebay struct {
	addr   string // the api's public listener
	config string // path of the config file
}

// configText has two tiers. The limits of the tier open are in force, but never reached. A client
// of the tier shut is refused from its second request on. Three limits apply to each request.
const configText = `
redis: {url: "redis://%[1]s/0"}
identity:
  clients:
%[2]s
tiers:
  open:
    limits:
      - {name: per-minute, algorithm: sliding-window-counter, limit: 600000000, window: 1m}
      - {name: bursts, algorithm: token-bucket, limit: 600000000, window: 1m}
  shut:
    limits:
      - {name: per-hour, algorithm: sliding-window-counter, limit: 1, window: 1h}
      - {name: bursts, algorithm: token-bucket, limit: 600000000, window: 1m}
limits:
  - {name: per-address, per: ip, algorithm: token-bucket, limit: 600000000, window: 1m}
backends:
  bench:
    url: http://%[3]s
    drain: {rate: %[4]s, burst: 1, concurrency: 100}
    line: {capacity: 10000000, max_wait: 24h}
  # The line of sick is full, so that no call probes the backend.
  sick: {url: "http://%[3]s", drain: {rate: 1/s}, line: {capacity: 1}}
operations:
  job: {backend: bench, path: /job, on_overload: [reject]}
  known:
    backend: sick
    path: /job
    cache: {stale_for: 24h, share: all}
    degrade: {when: {backend: sick}}
  refused: {backend: bench, path: /job, cache: {stale_for: 24h, share: all}}
`

const (
	openKey = "bench-open-%02d-0123456789abcdef"
	shutKey = "bench-shut-%02d-0123456789abcdef"
)

// startForebay starts an api and the given number of workers. Their config has the given drain rate
// and backend address.
func (e *env) startForebay(ctx context.Context, workers int,
	rate, backend string) (*forebay, error) {
	var clients strings.Builder
	for i := range e.plan.Clients {
		fmt.Fprintf(&clients, "    - {name: open-%d, tier: open, key_sha256: [%x]}\n", i,
			sha256.Sum256(fmt.Appendf(nil, openKey, i)))
		fmt.Fprintf(&clients, "    - {name: shut-%d, tier: shut, key_sha256: [%x]}\n", i,
			sha256.Sum256(fmt.Appendf(nil, shutKey, i)))
	}
	f := &forebay{config: filepath.Join(e.dir, "forebay.yaml")}
	text := strings.TrimLeft(fmt.Sprintf(configText, e.redis, clients.String(), backend, rate),
		"\n")
	if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var err error
	if f.addr, err = freeAddress(); err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, err = e.serve(ctx, "api", "api", "http://"+f.addr+"/readyz", "-config", f.config,
		"-listen", f.addr, "-admin-listen", admin)
	if err != nil {
		return nil, err
	}
	return f, e.startWorkers(ctx, f, workers)
}

func (e *env) startWorkers(ctx context.Context, f *forebay, n int) error {
	for i := range n {
		admin, err := freeAddress()
		if err != nil {
			return err
		}
		name := fmt.Sprintf("worker-%d", i+1)
		if _, err := e.serve(ctx, name, "worker", "http://"+admin+"/readyz", "-config", f.config,
			"-admin-listen", admin); err != nil {
			return err
		}
	}
	return nil
}

// payload is 256 bytes of JSON.
var payload = []byte(`{"month":"2026-11","text":"` + strings.Repeat("x", 256-29) + `"}`)

var submission = []byte(`{"operation":"job","payload":` + string(payload) + `}`)

// submissions returns POSTs of a job, one for each client. key is openKey or shutKey.
func (f *forebay) submissions(clients int, key string) [][]byte {
	requests := make([][]byte, clients)
	for i := range requests {
		requests[i] = load.Request("POST", f.addr, "/v1/jobs", submission,
			"Authorization: Bearer "+fmt.Sprintf(key, i))
	}
	return requests
}

// submit posts one job as client i and returns the path of the job's status.
func (f *forebay) submit(ctx context.Context, i int) (path string, err error) {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+f.addr+"/v1/jobs",
		strings.NewReader(string(submission)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+fmt.Sprintf(openKey, i))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if path = res.Header.Get("Location"); res.StatusCode != http.StatusAccepted || path == "" {
		return "", fmt.Errorf("submit: %s: %s", res.Status, body)
	}
	return path, nil
}
