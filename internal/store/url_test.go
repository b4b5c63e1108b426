package store

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestURLsOfEveryKindAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url  string
		want target
		logs string // the result of String
	}{
		{"redis://127.0.0.1", target{kind: single, addrs: []string{"127.0.0.1:6379"}},
			"redis://127.0.0.1:6379/0"},
		{"redis://cache.internal:7000/3", target{kind: single,
			addrs: []string{"cache.internal:7000"}, db: 3}, "redis://cache.internal:7000/3"},
		{"redis://:p%40ss%2Fw:rd@[::1]:6380/", target{kind: single, addrs: []string{"[::1]:6380"},
			password: "p@ss/w:rd"}, "redis://[::1]:6380/0"},
		{"redis://me:a@b@host", target{kind: single, addrs: []string{"host:6379"}, user: "me",
			password: "a@b"}, "redis://host:6379/0"},
		{"rediss://me:pw@[2001:db8::1]",
			target{kind: single, tls: true, addrs: []string{"[2001:db8::1]:6379"}, user: "me",
				password: "pw"}, "rediss://[2001:db8::1]:6379/0"},
		{"unix:///run/redis.sock?db=2", target{kind: single, addrs: []string{"/run/redis.sock"},
			db: 2}, "unix:///run/redis.sock?db=2"},
		{"unix://me:pw@/run/a%20b", target{kind: single, addrs: []string{"/run/a b"}, user: "me",
			password: "pw"}, "unix:///run/a b?db=0"},
		{
			"redis+sentinel://me:pw@h1:26380,h2/main/4?sentinel_password=s%26x",
			target{kind: sentinel, addrs: []string{"h1:26380", "h2:26379"}, user: "me",
				password: "pw", sentinelPassword: "s&x", master: "main", db: 4},
			"redis+sentinel://h1:26380,h2:26379/main/4",
		},
		{"rediss+sentinel://h1/main", target{kind: sentinel, tls: true, addrs: []string{"h1:26379"},
			master: "main"}, "rediss+sentinel://h1:26379/main/0"},
		{"redis+cluster://h1:7000,h2,[::1]:7002",
			target{kind: cluster, addrs: []string{"h1:7000", "h2:6379", "[::1]:7002"}},
			"redis+cluster://h1:7000,h2:6379,[::1]:7002"},
		{"rediss+cluster://:pw@h1/0", target{kind: cluster, tls: true, addrs: []string{"h1:6379"},
			password: "pw"}, "rediss+cluster://h1:6379"},
	} {
		got, err := parse(c.url)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\n got %+v, %v\nwant %+v", c.url, got, err, c.want)
			continue
		}
		if got.String() != c.logs {
			t.Errorf("%s logs as %s, want %s", c.url, got, c.logs)
		}
	}
}

func TestABadURLNamesTheMendAndKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, mend string }{
		{"s3cret", "redis://127.0.0.1:6379/0"},
		{"s3cret@127.0.0.1:6379", "must begin with redis://"},
		{"http://:s3cret@host", "must begin with redis://"},
		{"REDIS://:s3cret@host", "must begin with redis://"},
		{"redis://", "address (number 1)"},
		{"redis://:s3cret@", "address (number 1)"},
		{"redis://:s3cret@:6379", "address (number 1)"},
		{"redis://s3cret@host", ":password@"},
		{"redis://me:@host", ":password@"},
		{"redis://:s3cret%zz@host", "%25"},
		{"redis://:a/s3cret@host", "/ is %2F"},
		{"redis://:a?s3cret@host", "? is %3F"},
		{"redis://:a#s3cret@host", "# is %23"},
		{"redis://:s3cret@host:0", "address (number 1)"},
		{"redis://:s3cret@host:65536", "address (number 1)"},
		{"redis://:s3cret@host:port", "address (number 1)"},
		{"redis://:s3cret@::1", "[::1]:6379"},
		{"redis://:s3cret@[::1", "[::1]:6379"},
		{"redis://:s3cret@host/one", "database that is no number"},
		{"redis://:s3cret@host/-1", "database that is no number"},
		{"redis://:s3cret@host/0/1", "database that is no number"},
		{"redis://:s3cret@host/99999999999999999999", "database that is no number"},
		{"redis://:s3cret@h1,h2", "redis+cluster://"},
		{"redis://:s3cret@host?read_timeout=1h", "unknown parameter"},
		{"redis://:s3cret@host?%zz=s3cret", "name=value"},
		{"unix://:s3cret@run/redis.sock", "absolute path"},
		{"unix://", "absolute path"},
		{"unix:///run/redis.sock?db=x", "database that is no number"},
		{"redis+sentinel://:s3cret@h1", "redis+sentinel://host:26379,host2:26379/mymaster/0"},
		{"redis+sentinel://:s3cret@h1//0", "lacks the name"},
		{"redis+sentinel://:s3cret@h1,/main", "address (number 2)"},
		{"redis+cluster://:s3cret@h1/1", "a cluster has 0 alone"},
	} {
		_, err := parse(c.url)
		if err == nil || !strings.Contains(err.Error(), c.mend) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v; want %q in it and no secret", c.url, err, c.mend)
		}
	}
}

func FuzzURL(f *testing.F) {
	f.Add("redis+sentinel://me:pw@h1:26380,h2/main/4?sentinel_password=s")
	f.Add("unix://:pw@/run/redis.sock?db=1")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parse(raw)
		if err == nil && (len(got.addrs) == 0 || got.String() == "" ||
			got.kind == sentinel && got.master == "") {
			t.Fatalf("%q is accepted as %+v", raw, got)
		}
	})
}

// C122: a contradiction between the URL and the keys beside it is an error that names the key.
func TestALoginThatContradictsTheURLNamesTheField(t *testing.T) {
	t.Parallel()
	const sentinels = "redis+sentinel://h/main"
	for _, c := range []struct {
		url   string
		login Login
		field string
	}{
		{"redis://:s3cret@h", Login{Password: "s3cret"}, "password"},
		{"redis://:s3cret@h", Login{Username: "me"}, "username"},
		{"redis://h", Login{Username: "me"}, "username"},
		{"redis://h,i", Login{}, "url"},
		{"redis://h:99999", Login{}, "url"},
		{"redis://:a#s3cret@h", Login{}, "url"},
		{"redis://h", Login{SentinelPassword: "s3cret"}, "sentinel_password"},
		{"redis://h", Login{SentinelUsername: "me"}, "sentinel_username"},
		{sentinels, Login{SentinelUsername: "me"}, "sentinel_username"},
		{sentinels + "?sentinel_password=s3cret", Login{SentinelPassword: "s3cret"},
			"sentinel_password"},
		{sentinels + "?sentinel_password=s3cret", Login{SentinelUsername: "me"},
			"sentinel_username"},
		{"redis://h", Login{TLS: TLS{CA: "s3cret"}}, "tls"},
		{"rediss://h", Login{TLS: TLS{CA: "/s3cret"}}, "tls.ca"},
		{"rediss://h", Login{TLS: TLS{CA: "url_test.go"}}, "tls.ca"},
		{"rediss://h", Login{TLS: TLS{Key: "/s3cret"}}, "tls.cert"},
		{"rediss://h", Login{TLS: TLS{Cert: "/s3cret"}}, "tls.key"},
		{"rediss://h", Login{TLS: TLS{Cert: "url_test.go", Key: "/s3cret"}}, "tls.key"},
		{"rediss://h", Login{TLS: TLS{Cert: "url_test.go", Key: "url_test.go"}}, "tls.cert"},
	} {
		var found ConfigError
		err := Config{URL: c.url, Login: c.login}.Check()
		if !errors.As(err, &found) || found.Field != c.field ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s with %+v: %v; want an error of %s without secrets",
				c.url, c.login, err, c.field)
		}
	}
}
