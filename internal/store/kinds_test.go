package store_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay/forebay/internal/redistest"
	"github.com/forebay/forebay/internal/store"
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

// C76: after a fail-over, work resumes by itself. Meanwhile the store reports that it can't.
func TestAFailOverIsFollowed(t *testing.T) {
	t.Parallel()
	group := redistest.StartSentinel(t)
	s, log := connected(t, group.URL())
	group.Master.Kill()
	within(t, promised, "unhealthy without a master", unhealthy(s))
	within(t, 10*time.Second, "healthy with the new master", s.Healthy)
	for name, rdb := range map[string]redis.UniversalClient{"Client": s.Client(),
		"Executor": s.Executor()} {
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
		t.Fatal("the cluster isn't taken for one")
	}
	script := redis.NewScript(`
		redis.call("SET", KEYS[1], ARGV[1])
		return redis.call("SET", KEYS[2], ARGV[1])`)
	for i := range 20 { // over all nodes
		tag := "{" + strconv.Itoa(i) + "}"
		if err := script.Run(t.Context(), s.Client(), []string{tag + "a", tag + "b"},
			"v").Err(); err != nil {
			t.Fatal(err)
		}
	}

	// A lost reply leaves open whether the command ran. It must not run twice, on a cluster
	// neither.
	const key = "{n}count"
	pid := masterOf(t, nodes.(*redis.ClusterClient), key)
	warm(t, s.Client(), "{n}list")
	if err := redistest.Freeze(pid); err != nil {
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
	// so that it knows the cluster's present topology
	if err := s.Executor().Get(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, promised, "unhealthy without a node", unhealthy(s))
	within(t, 15*time.Second, "healthy with the node's replica", s.Healthy)
	for name, rdb := range map[string]redis.UniversalClient{"Client": s.Client(),
		"Executor": s.Executor()} {
		within(t, 3*time.Second, name+" calls the replica", func() bool {
			return rdb.Incr(t.Context(), key).Err() == nil
		})
	}
}

// replicate adds a replica to the node that holds key, and waits until it has the node's data.
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
	replica := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "2000").Client(t)
	host, port, err := net.SplitHostPort(master.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.ClusterMeet(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the nodes have met", func() bool {
		return replica.ClusterReplicate(t.Context(), id).Err() == nil
	})
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

// masterOf returns the pid of the node that holds key.
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

// N17: a Redis with a private authority that requires client certificates is reached with both. A
// server without a certificate of the authority isn't.
func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.issue(t, "server", net.IPv4(127, 0, 0, 1))
	addr := redistest.StartTLS(t, ours.file, cert, key)
	cert, key = ours.issue(t, "client")
	login := store.Login{TLS: store.TLS{CA: ours.file, Cert: cert, Key: key}}

	s, _ := openedAs(t, store.Config{URL: "rediss://" + addr, Login: login})
	within(t, 10*time.Second, "healthy with the authority and a client's certificate", s.Healthy)

	login.TLS.ServerName = "server"
	s, _ = openedAs(t, store.Config{URL: "rediss://" + addr, Login: login})
	within(t, 10*time.Second, "healthy by the name in the certificate", s.Healthy)

	serverFor := func(t store.TLS) store.Config {
		return store.Config{URL: "rediss://" + addr, Login: store.Login{TLS: t}}
	}
	for part, c := range map[string]store.Config{
		"certificate": serverFor(store.TLS{CA: theirs.file, Cert: cert, Key: key}),
		"unknown":     serverFor(store.TLS{}),
		"other.test": serverFor(store.TLS{CA: ours.file, Cert: cert, Key: key,
			ServerName: "other.test"}),
		"required": serverFor(store.TLS{CA: ours.file}),
	} {
		s, _ := openedAs(t, c)
		within(t, 10*time.Second, "the reason says "+part, func() bool {
			return strings.Contains(s.Reason(), part)
		})
	}
	if s, _ := opened(t, "redis://"+addr); s.Healthy() {
		t.Error("a server that requires TLS is healthy without it")
	}
}

// N15: sentinels may require another password than the servers that they watch, or none. C122:
// passwords apart from the URL are taken literally.
func TestSentinelsHaveAPasswordOfTheirOwn(t *testing.T) {
	t.Parallel()
	const data, own = `d/a?t#a@%41:"`, `s#e/n?t@%`
	group := redistest.StartSentinel(t)
	for _, server := range []*redistest.Server{group.Master, group.Replica} {
		rdb := server.Client(t)
		if err := rdb.ConfigSet(t.Context(), "masterauth", data).Err(); err != nil {
			t.Fatal(err)
		}
		require(t, rdb, data)
	}
	if err := group.Client(t).Do(t.Context(), "SENTINEL", "SET", redistest.MasterName, "auth-pass",
		data).Err(); err != nil {
		t.Fatal(err)
	}
	s, _ := openedAs(t, store.Config{URL: group.URL(), Login: store.Login{Password: data}})
	within(t, 10*time.Second, "healthy while the sentinel requires no password", s.Healthy)

	require(t, group.Client(t), own)
	s, _ = openedAs(t,
		store.Config{URL: group.URL(), Login: store.Login{Password: data, SentinelPassword: own}})
	within(t, 10*time.Second, "healthy with both passwords", s.Healthy)

	escaped := fmt.Sprintf("redis+sentinel://:%s@%s/%s/0?sentinel_password=%s",
		url.PathEscape(data), group.Addr, redistest.MasterName, url.QueryEscape(own))
	s, _ = openedAs(t, store.Config{URL: escaped})
	within(t, 10*time.Second, "healthy with both passwords in the URL", s.Healthy)

	for _, login := range []store.Login{{Password: data},
		{Password: data, SentinelPassword: data}} {
		if s, _ := openedAs(t, store.Config{URL: group.URL(), Login: login}); s.Healthy() {
			t.Error("the sentinel takes the wrong password")
		}
	}
}

// require makes a server or a sentinel require a password of new connections.
func require(t *testing.T, rdb redis.UniversalClient, password string) {
	t.Helper()
	if err := rdb.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass",
		">"+password).Err(); err != nil {
		t.Fatal(err)
	}
}

// authority signs certificates; file holds its own certificate.
type authority struct {
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}}
	a.file = a.write(t, "CERTIFICATE", a.sign(t, a.cert, key))
	return a
}

// issue returns the files of a certificate for a name and addresses, and of its key.
func (a *authority) issue(t *testing.T, name string, ips ...net.IP) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: ips}
	return a.write(t, "CERTIFICATE", a.sign(t, template, private)), a.write(t, "PRIVATE KEY", der)
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (a *authority) write(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
