package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sentinel is one sentinel that watches a master with one replica. It fails over within about a
// second.
type Sentinel struct {
	Addr            string
	Master, Replica *Server // as they were at the start
}

// MasterName is the name under which the sentinel knows its master.
const MasterName = "main"

// StartSentinel starts a master, its replica and their sentinel. All end with t.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{Master: Start(t)}
	host, port, err := net.SplitHostPort(s.Master.Addr)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s.Replica = Start(t, "--replicaof", host+" "+port)

	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf") // required: the sentinel rewrites it
	var p *process
	err = onFreePort(func(own int) error {
		s.Addr = loopback(own)
		config := fmt.Sprintf(`bind 127.0.0.1
port %d
sentinel monitor %[2]s %[3]s %[4]s 1
sentinel down-after-milliseconds %[2]s 500
sentinel failover-timeout %[2]s 2000
`, own, MasterName, host, port)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return err
		}
		p, err = start(dir, s.Addr, file, "--sentinel")
		return err
	})
	if err != nil {
		t.Fatalf("redistest: sentinel: %v", err)
	}
	t.Cleanup(p.kill)
	s.awaitReplica(t)
	return s
}

// awaitReplica waits until the sentinel has found the replica and the replica has the master's
// data. Before that there is nothing to fail over to.
func (s *Sentinel) awaitReplica(t testing.TB) {
	t.Helper()
	sentinel, replica := newClient(t, s.Addr), newClient(t, s.Replica.Addr)
	deadline := time.Now().Add(startTimeout)
	for ; time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		masters, err := sentinel.InfoMap(t.Context(), "sentinel").Result()
		if err != nil {
			t.Fatalf("redistest: sentinel: %v", err)
		}
		link, err := replica.InfoMap(t.Context(), "replication").Result()
		if err != nil {
			t.Fatalf("redistest: replica: %v", err)
		}
		want := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=1,sentinels=1", MasterName,
			s.Master.Addr)
		if masters["Sentinel"]["master0"] == want &&
			link["Replication"]["master_link_status"] == "up" {
			return
		}
	}
	t.Fatalf("redistest: the sentinel has not found the replica within %v", startTimeout)
}

// URL returns the sentinel's URL, in the form of the service's config.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + s.Addr + "/" + MasterName + "/0"
}

// Client returns a client of the sentinel itself, closed when t ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	t.Helper()
	return newClient(t, s.Addr)
}
