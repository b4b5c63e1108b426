package front

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/redistest"
)

// Large payloads don't fail small ones (issue 10, point 8). Redis is behind 117 MB/s, a gigabit
// link, and 64 connections post payloads of 1 MiB without a pause. Another client's small requests
// still get a 202.
func TestLargePayloadsDoNotFailSmallOnes(t *testing.T) { // not in parallel: it takes all processors
	link := redistest.StartProxy(t, redistest.Start(t, "--save", "", "--appendonly", "no").Addr)
	link.Throttle(117e6)
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	digest := func(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }
	if err := os.WriteFile(file, []byte(`
http: {max_body: 2MiB, max_buffered: 1GiB}
redis: {url: "`+link.URL()+`"}
shutdown_delay: 0s
identity:
  clients:
    - {name: bulk, tier: bounded, key_sha256: [`+digest("bulk")+`]}
    - {name: small, tier: free, key_sha256: [`+digest("small")+`]}
tiers:
  bounded: {max_stored: 16MiB} # its payloads cross the link nevertheless
  free: {limits: [{name: per-hour, algorithm: token-bucket, limit: 1000000, window: 1h}]}
backends:
  reports: {url: "http://127.0.0.1:9", drain: {rate: 1/s}, line: {capacity: 1000000, max_wait: 30d}}
operations: {report: {backend: reports, path: /}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	base, ended := serve(ctx, t, file)
	post := func(client http.Client, key, text string) (status int, body []byte, err error) {
		r, err := http.NewRequestWithContext(ctx, "POST", base+"/v1/jobs", strings.NewReader(text))
		if err != nil {
			return 0, nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		a, err := client.Do(r)
		if err != nil {
			return 0, nil, err
		}
		defer a.Body.Close()
		body, err = io.ReadAll(a.Body)
		return a.StatusCode, body, err
	}

	var crossed atomic.Int64 // large payloads that were sent to Redis
	var bulk sync.WaitGroup
	small := `{"operation":"report","payload":1}`
	large := `{"operation":"report","payload":"` + strings.Repeat("x", 1<<20) + `"}`
	for range 64 {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		bulk.Go(func() {
			for ctx.Err() == nil {
				switch status, _, _ := post(http.Client{Transport: transport}, "bulk",
					large); status {
				case http.StatusAccepted, http.StatusTooManyRequests:
					crossed.Add(1)
				}
			}
		})
	}
	await := func(n int64) {
		t.Helper()
		end := time.Now().Add(30 * time.Second)
		for ; crossed.Load() < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of the large payloads were sent, want %d", crossed.Load(), n)
			}
		}
	}
	await(20) // more than the 16 that are accepted
	before, longest := crossed.Load(), time.Duration(0)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for n := range 200 {
		asked := time.Now()
		status, body, err := post(http.Client{Transport: transport}, "small", small)
		if status != http.StatusAccepted || err != nil {
			t.Fatalf("small request %d after %v: %d %s, %v",
				n, time.Since(asked), status, body, err)
		}
		longest = max(longest, time.Since(asked))
	}
	t.Logf("small requests took at most %v, beside %d large ones", longest, crossed.Load()-before)
	await(before + 1) // the load went on
	stop()
	bulk.Wait()
	<-ended
}
