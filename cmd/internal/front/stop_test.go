package front

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay/forebay/cmd/internal/wire"
	"github.com/forebay/forebay/internal/redistest"
)

// N43: an api is stopped while 16 clients with persistent connections submit without a pause. Until
// the port is closed, no client sees a broken connection or an answer other than 202. Each job that
// was answered with a 202 is on record.
func TestAStopBreaksNoConnection(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	if err := os.WriteFile(file, []byte(`
redis: {url: "`+redis.URL()+`"}
shutdown_delay: 1s
identity: {anonymous: free}
tiers: {free: {}}
backends:
  reports: {url: "http://127.0.0.1:9", drain: {rate: 1/s}, line: {capacity: 1000000, max_wait: 30d}}
operations: {report: {backend: reports, path: /}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	base, ended := serve(ctx, t, file)

	var mu sync.Mutex
	var accepted []string
	var clients sync.WaitGroup
	for range 16 {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		clients.Go(func() {
			for {
				// A body that can't be rewound: the transport can't try again unnoticed.
				body := io.NopCloser(strings.NewReader(`{"operation":"report","payload":1}`))
				r, err := http.NewRequest("POST", base+"/v1/jobs", body)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				a, err := client.Do(r)
				if errors.Is(err, syscall.ECONNREFUSED) {
					return
				}
				if err != nil {
					t.Errorf("a client saw: %v", err)
					return
				}
				var job struct {
					ID   string `json:"job_id"`
					Code string `json:"code"`
				}
				err = json.NewDecoder(a.Body).Decode(&job)
				io.Copy(io.Discard, a.Body)
				a.Body.Close()
				if job.Code == "store_unavailable" {
					continue // the machine is short of CPU
				}
				if err != nil || a.StatusCode != http.StatusAccepted {
					t.Errorf("a client got %s, %v", a.Status, err)
					return
				}
				mu.Lock()
				accepted = append(accepted, job.ID)
				mu.Unlock()
			}
		})
	}
	for n := 0; n < 100; time.Sleep(time.Millisecond) {
		mu.Lock()
		n = len(accepted)
		mu.Unlock()
	}
	stop()
	clients.Wait()
	if code := <-ended; code != 0 {
		t.Errorf("it ended with %d", code)
	}

	again, stopAgain := context.WithCancel(t.Context())
	base, ended = serve(again, t, file)
	// some 200, the last ones among them
	for i := 0; i < len(accepted); i += 1 + len(accepted)/200 {
		id := accepted[len(accepted)-1-i]
		a, err := http.Get(base + "/v1/jobs/" + id)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != http.StatusOK {
			t.Errorf("job %s: %s", id, a.Status)
		}
	}
	stopAgain()
	<-ended
}

// serve runs an api with a config until ctx ends, and returns its URL once it is ready. ended
// receives its exit code.
func serve(ctx context.Context, t *testing.T, config string) (base string, ended chan int) {
	t.Helper()
	addr, log := freeAddress(t), &lines{}
	ended = make(chan int, 1)
	go func() {
		args := []string{"-config", config, "-listen", addr, "-admin-listen", "127.0.0.1:0"}
		none := func(string) (string, bool) { return "", false }
		ended <- Run(ctx, wire.Process{Args: args, Env: none, Stdout: io.Discard, Stderr: log})
	}()
	base = "http://" + addr
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if a, err := http.Get(base + "/readyz"); err == nil {
			a.Body.Close()
			if a.StatusCode == 200 {
				return base, ended
			}
		}
		if time.Now().After(end) {
			t.Fatalf("it isn't ready:\n%s", log)
		}
	}
}
