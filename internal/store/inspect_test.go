package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/forebay/forebay/internal/redistest"
)

// C68: a Redis that may evict or lose jobs is used, with a loud warning.
func TestARedisThatMayLoseJobsIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string // a part of each warning
	}{
		{nil, nil},
		{[]string{"--maxmemory-policy", "volatile-lru"},
			[]string{"maxmemory-policy is volatile-lru"}},
		{[]string{"--maxmemory-policy", "allkeys-lru"},
			[]string{"maxmemory-policy is allkeys-lru"}},
		{[]string{"--appendonly", "no"}, []string{"Nothing is persisted"}},
		{[]string{"--appendonly", "no", "--save", "3600 1", "--maxmemory-policy", "allkeys-lfu"},
			[]string{"allkeys-lfu", "Only snapshots"}},
	} {
		s, log := connected(t, redistest.Start(t, c.args...).URL())
		got := s.Warnings()
		if len(got) != len(c.want) {
			t.Errorf("%q: warnings %q, want %q", c.args, got, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) || len(log.lines(want)) != 1 ||
				!strings.Contains(log.lines(want)[0], "level=WARN") {
				t.Errorf("%q: warning %q, logged %q; want %q in both",
					c.args, got[i], log.lines(want), want)
			}
		}
	}
}

// Managed servers forbid CONFIG, and some forbid INFO. The checks that aren't possible are
// reported, and Redis is used.
func TestAnImpossibleCheckIsReported(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "no")
	for _, c := range []struct{ rule, want string }{
		{"-config", "CONFIG is not permitted"},
		{"-info", "INFO is not permitted"},
	} {
		user := redistest.Name(t, "user")
		if err := srv.Client(t).Do(t.Context(), "ACL", "SETUSER", user, "on", ">s3cret", "~*", "&*",
			"+@all", c.rule).Err(); err != nil {
			t.Fatal(err)
		}
		s, log := connected(t, "redis://"+user+":s3cret@"+srv.Addr)
		if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], c.want) {
			t.Errorf("%s: warnings %q; want %q", c.rule, w, c.want)
		}
		if leaked := log.lines("s3cret"); leaked != nil {
			t.Errorf("the log holds the password: %s", leaked)
		}
	}
}

func TestAWrongPasswordIsAReasonAndIsNotRepeated(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--requirepass", "right")
	s, log := opened(t, "redis://:s3cret@"+srv.Addr)
	within(t, 10*time.Second, "the reason is WRONGPASS", func() bool {
		return strings.Contains(s.Reason(), "WRONGPASS")
	})
	if strings.Contains(s.Reason(), "s3cret") || log.lines("s3cret") != nil {
		t.Errorf("the password is in the reason %q or in the log", s.Reason())
	}
	connected(t, "redis://:right@"+srv.Addr)
}

func TestAnUnfitRedisIsUnhealthyAndSaysWhy(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.Start(t, "--replicaof", strings.ReplaceAll(master.Addr, ":", " "))
	for url, want := range map[string]string{
		fake(t, "6.0.16"): "version is 6.0.16: Forebay needs Redis 6.2 or later",
		fake(t, "5.9.9"):  "version is 5.9.9",
		fake(t, "edge"):   "can't be read",
		replica.URL():     "read-only replica",
	} {
		s, log := opened(t, url)
		within(t, 10*time.Second, "the reason has "+want, func() bool {
			return strings.Contains(s.Reason(), want)
		})
		if lines := log.lines(want); len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") {
			t.Errorf("logged %q, want one error", lines)
		}
	}
	for _, version := range []string{"6.2.0", "7.0.15", "8.4.0", "10.0.0"} {
		connected(t, fake(t, version))
	}
}

// A Redis that comes back as an older one is a new kind of fault, which is logged too.
func TestARedisThatComesBackUnfitIsLogged(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, log := connected(t, srv.URL())
	srv.Kill()
	within(t, promised, "unhealthy after a kill", unhealthy(s))
	fakeAt(t, srv.Addr, "6.0.16")
	within(t, promised, "an error that names its version", func() bool {
		return len(log.lines("6.0.16")) == 1
	})
	if !strings.Contains(s.Reason(), "6.0.16") || len(log.lines("redis: not healthy")) != 2 {
		t.Errorf("the reason is %q, logged %q", s.Reason(), log.lines("redis: not healthy"))
	}
}

// fake returns the URL of a server that claims a version. It answers as much as a probe asks.
func fake(t *testing.T, version string) (url string) { return fakeAt(t, "127.0.0.1:0", version) }

func fakeAt(t *testing.T, addr, version string) (url string) {
	t.Helper()
	srv, err := server.NewServer(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	for cmd, reply := range map[string]func(*server.Peer){
		"PING": func(c *server.Peer) { c.WriteInline("PONG") },
		"INFO": func(c *server.Peer) {
			c.WriteBulk("# Server\r\nredis_version:" + version +
				"\r\n# Persistence\r\naof_enabled:1\r\n")
		},
	} {
		err := srv.Register(cmd, func(c *server.Peer, _ string, _ []string) { reply(c) })
		if err != nil {
			t.Fatal(err)
		}
	}
	return "redis://" + srv.Addr().String()
}
