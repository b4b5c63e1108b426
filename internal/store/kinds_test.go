package store_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"forebay/internal/redistest"
	"forebay/internal/store"
)

func TestAUnixSocketIsReached(t *testing.T) {
	t.Parallel()
	socket := redistest.Client(t).(*redis.Client).Options().Addr
	s, _ := connected(t, "unix://"+socket+"?db=1")
	if s.Embedded() || s.Cluster() {
		t.Fatalf("embedded %v, cluster %v", s.Embedded(), s.Cluster())
	}
	key := redistest.Name(t, "key")
	if err := s.Client().Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n := redistest.Client(t).Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the key is in database 0")
	}
}

// C76: after a fail-over work goes on by itself; meanwhile the store says that it can't.
func TestAFailOverIsFollowed(t *testing.T) {
	t.Parallel()
	group := redistest.StartSentinel(t)
	s, log := connected(t, group.URL())
	group.Master.Kill()
	within(t, promised, "unhealthy without a master", unhealthy(s))
	within(t, 10*time.Second, "healthy with the new master", s.Healthy)
	for name, rdb := range map[string]redis.UniversalClient{"Client": s.Client(), "Executor": s.Executor()} {
		if err := rdb.Set(t.Context(), name, "v", 0).Err(); err != nil {
			t.Errorf("%s after the fail-over: %v", name, err)
		}
	}
	if got := group.Replica.Client(t).Get(t.Context(), "Client").Val(); got != "v" {
		t.Errorf("the new master holds %q", got)
	}
	if len(log.lines("redis: not healthy")) != 1 {
		t.Errorf("the gap was logged as %q", log.lines("redis: "))
	}
}

func TestAClusterIsUsedAndItsLossNoticed(t *testing.T) {
	t.Parallel()
	nodes, addrs := redistest.StartCluster(t)
	s, _ := connected(t, "redis+cluster://"+strings.Join(addrs, ","))
	if !s.Cluster() {
		t.Fatal("a cluster is none")
	}
	script := redis.NewScript(`redis.call("SET", KEYS[1], ARGV[1]) return redis.call("SET", KEYS[2], ARGV[1])`)
	for i := range 20 { // over all nodes
		tag := "{" + strconv.Itoa(i) + "}"
		if err := script.Run(t.Context(), s.Client(), []string{tag + "a", tag + "b"}, "v").Err(); err != nil {
			t.Fatal(err)
		}
	}

	// A reply that is lost leaves open whether the command ran. It must not run twice, on a cluster neither.
	const key = "{n}count"
	pid := masterOf(t, nodes.(*redis.ClusterClient), key)
	warm(t, s.Client(), "{n}list")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	err := s.Client().Incr(t.Context(), key).Err()
	within(t, promised, "unhealthy while a node hangs", unhealthy(s))
	if err2 := syscall.Kill(pid, syscall.SIGCONT); err == nil || err2 != nil {
		t.Fatalf("a hung node answered: %v, %v", err, err2)
	}
	within(t, 5*time.Second, "healthy after the hang", s.Healthy)
	if n := s.Client().Get(t.Context(), key).Val(); n != "1" {
		t.Errorf("one INCR counted %s", n)
	}

	replicate(t, nodes.(*redis.ClusterClient), key)
	if err := s.Executor().Get(t.Context(), key).Err(); err != nil { // so it knows the cluster as it was
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, promised, "unhealthy without a node", unhealthy(s))
	within(t, 15*time.Second, "healthy with the node's replica", s.Healthy)
	for name, rdb := range map[string]redis.UniversalClient{"Client": s.Client(), "Executor": s.Executor()} {
		within(t, 3*time.Second, name+" calls the replica", func() bool { return rdb.Incr(t.Context(), key).Err() == nil })
	}
}

// replicate adds a replica to the node that holds key and waits until it has the node's data.
func replicate(t *testing.T, rdb *redis.ClusterClient, key string) {
	t.Helper()
	master, err := rdb.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	id, err := master.Do(t.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000").Client(t)
	host, port, err := net.SplitHostPort(master.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.ClusterMeet(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the nodes have met", func() bool { return replica.ClusterReplicate(t.Context(), id).Err() == nil })
	within(t, 10*time.Second, "the replica has the data", func() bool {
		info, err := replica.InfoMap(t.Context(), "replication").Result()
		if err != nil || info["Replication"]["master_link_status"] != "up" {
			return false
		}
		return rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			known, err := node.ClusterNodes(ctx).Result()
			if err == nil && !strings.Contains(known, "slave "+id) {
				err = errors.New("a master doesn't know the replica")
			}
			return err
		}) == nil
	})
}

// masterOf returns the process of the node that holds key.
func masterOf(t *testing.T, rdb *redis.ClusterClient, key string) int {
	t.Helper()
	node, err := rdb.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	info, err := node.InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	addr, roots := tlsFront(t, redistest.Client(t).(*redis.Client).Options().Addr)
	s, err := store.OpenWith(t.Context(), "rediss://"+addr, slog.New(slog.DiscardHandler), &tls.Config{RootCAs: roots}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	within(t, 10*time.Second, "healthy with a good certificate", s.Healthy)
	stranger, _ := opened(t, "rediss://"+addr)
	within(t, 10*time.Second, "a certificate that nobody vouches for is the reason", func() bool {
		return strings.Contains(stranger.Reason(), "certificate")
	})
	if s, _ := opened(t, "redis://"+addr); s.Healthy() {
		t.Error("a server that wants TLS is healthy without")
	}
}

// tlsFront is a TLS server on the loopback before the server at socket.
func tlsFront(t *testing.T, socket string) (addr string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(leaf)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer front.Close()
				back, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer back.Close()
				go func() { io.Copy(back, front); back.Close() }()
				io.Copy(front, back)
			}()
		}
	}()
	return l.Addr().String(), roots
}
