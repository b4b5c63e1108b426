package pubsub_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/forebay/forebay/internal/pubsub"
	"github.com/forebay/forebay/internal/redistest"
)

// patience is how long a test waits for a message that must come.
const patience = 10 * time.Second

// station is a Redis with a reader of its channels a and b.
type station struct {
	t          *testing.T
	server     *redistest.Server
	rdb        redis.UniversalClient
	heard      chan string   // the channel and payload of each message
	subscribed chan struct{} // each call of Subscribed
}

// newStation starts a Redis without a reader.
func newStation(t *testing.T) *station {
	t.Helper()
	s := &station{t: t, server: redistest.Start(t), heard: make(chan string, 100),
		subscribed: make(chan struct{}, 100)}
	s.rdb = s.server.Client(t)
	return s
}

// read starts the reader through rdb, with c's Silence.
func (s *station) read(rdb redis.UniversalClient, c pubsub.Config) {
	s.t.Helper()
	c.Redis = rdb
	c.Topics = map[string]func(string){
		"a": func(payload string) { s.heard <- "a " + payload },
		"b": func(payload string) { s.heard <- "b " + payload },
	}
	c.Subscribed = func() { s.subscribed <- struct{}{} }
	r := pubsub.Read(c)
	s.t.Cleanup(func() { r.Close() })
}

// tuneIn starts a Redis and its reader, which has subscribed.
func tuneIn(t *testing.T, c pubsub.Config) *station {
	t.Helper()
	s := newStation(t)
	s.read(s.rdb, c)
	receive(t, s.subscribed)
	return s
}

func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatal("nothing was received")
	}
	return got
}

// publish publishes a message, which must have one receiver.
func (s *station) publish(channel, payload string) {
	s.t.Helper()
	n, err := s.rdb.Publish(s.t.Context(), channel, payload).Result()
	if err != nil || n != 1 {
		s.t.Fatalf("%d receivers of %s, %v", n, channel, err)
	}
}

// hears checks that a message that is published now is handled next.
func (s *station) hears(channel, payload string) {
	s.t.Helper()
	s.publish(channel, payload)
	if got := receive(s.t, s.heard); got != channel+" "+payload {
		s.t.Errorf("got %q after %q to %s", got, payload, channel)
	}
}

func TestEachChannelHasItsFunction(t *testing.T) {
	t.Parallel()
	s := tuneIn(t, pubsub.Config{})
	s.hears("a", "1")
	s.hears("b", "2")
	s.hears("a", "")
	var want []string
	for i := range 50 {
		channel := []string{"a", "b"}[i%2]
		s.publish(channel, fmt.Sprint(i))
		want = append(want, fmt.Sprint(channel, " ", i))
	}
	var got []string
	for range want {
		got = append(got, receive(t, s.heard))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAReaderReceivesAgainAfterItsConnectionBroke(t *testing.T) {
	t.Parallel()
	s := tuneIn(t, pubsub.Config{})
	killed, err := s.rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result()
	if err != nil || killed != 1 {
		t.Fatalf("%d connections were killed, %v", killed, err)
	}
	receive(t, s.subscribed)
	s.hears("a", "1")
	s.hears("b", "2")
	if n := len(s.subscribed); n != 0 {
		t.Errorf("%d more calls of Subscribed", n)
	}
}

// If the other end is gone without closing the connection, only its silence shows it.
func TestAReaderGivesUpASilentConnection(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	proxy := redistest.StartProxy(t, s.server.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, DisableIdentity: true})
	t.Cleanup(func() { rdb.Close() })
	s.read(rdb, pubsub.Config{Silence: 300 * time.Millisecond})
	receive(t, s.subscribed)
	s.hears("a", "1")
	proxy.Lame()
	s.publish("a", "lost")
	receive(t, s.subscribed) // through a new connection
	if err := s.rdb.Publish(t.Context(), "a", "2").Err(); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, s.heard); got != "a 2" {
		t.Errorf("got %q", got)
	}
}

// A quiet connection that answers pings is kept.
func TestAReaderKeepsAQuietConnection(t *testing.T) {
	t.Parallel()
	s := tuneIn(t, pubsub.Config{Silence: time.Second})
	connection := func() string {
		t.Helper()
		list, err := s.rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(list, " ")
		return id
	}
	before := connection()
	pings := func() int64 {
		t.Helper()
		info, err := s.rdb.InfoMap(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		var calls int64
		fmt.Sscanf(info["Commandstats"]["cmdstat_ping"], "calls=%d", &calls)
		return calls
	}
	from, end := pings(), time.Now().Add(patience)
	for pings() < from+6 { // two silences
		if time.Now().After(end) {
			t.Fatal("it doesn't ping")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if after := connection(); after != before {
		t.Errorf("connection %s became %s", before, after)
	}
}

// A reader may begin before its Redis.
func TestAReaderConnectsOnceItCan(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.server.Kill()
	s.read(s.rdb, pubsub.Config{})
	s.server.Restart()
	receive(t, s.subscribed)
	s.hears("a", "1")
}

func TestAClosedReaderLeavesNothingBehind(t *testing.T) {
	server := redistest.Start(t)
	for _, fault := range []func(){func() {}, server.Kill} {
		before := goleak.IgnoreCurrent()
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr, DisableIdentity: true})
		if err := rdb.Ping(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		r := pubsub.Read(pubsub.Config{Redis: rdb,
			Topics: map[string]func(string){"a": func(string) {}}})
		fault()
		for range 2 { // the second does nothing
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	}
}
