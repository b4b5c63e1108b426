package store

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is the place of Redis that a URL gives.
type target struct {
	kind             kind
	tls              bool
	config           *tls.Config // nil without tls
	addrs            []string    // host:port; or, for a single server, the path of a unix socket
	user, password   string
	sentinelUser     string
	sentinelPassword string
	master           string // for sentinel: the master's name
	db               int
}

type kind string

const (
	single   kind = "redis"
	sentinel kind = "sentinel"
	cluster  kind = "cluster"
)

// schemes are those of URLs. Each error below shows an example.
var schemes = map[string]target{
	"redis":           {kind: single},
	"rediss":          {kind: single, tls: true},
	"unix":            {kind: single},
	"redis+sentinel":  {kind: sentinel},
	"rediss+sentinel": {kind: sentinel, tls: true},
	"redis+cluster":   {kind: cluster},
	"rediss+cluster":  {kind: cluster, tls: true},
}

// maxDB bounds a database's number, far above any server's.
const maxDB = 1 << 20

// parse parses a URL. It doesn't use net/url, which refuses lists of hosts and quotes refused text.
// An error here never repeats text that may be part of a password.
func parse(raw string) (target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	t, known := schemes[scheme]
	if !ok || !known {
		return target{}, errors.New("must begin with redis://, rediss:// (TLS), unix://, " +
			"redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://, " +
			"as in redis://127.0.0.1:6379/0")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(raw, "#") || strings.Contains(path, "@") || strings.Contains(query, "@") {
		return target{}, errors.New("has a character in user or password that ends them; " +
			"give username and password apart from the URL, or percent-encode it: " +
			"/ is %2F, ? is %3F, # is %23, @ is %40, % is %25")
	}

	at := strings.LastIndexByte(authority, '@')
	var err error
	if at >= 0 {
		if t.user, t.password, err = userinfo(authority[:at]); err != nil {
			return target{}, err
		}
	}
	hosts := authority[at+1:]

	params, err := url.ParseQuery(query)
	if err != nil {
		return target{},
			errors.New("must have after ? only name=value pairs joined by &, percent-encoded")
	}
	take := func(name string) string {
		v := params.Get(name)
		delete(params, name)
		return v
	}
	switch {
	case scheme == "unix":
		err = t.socket(hosts, path, take("db"))
	case t.kind == sentinel:
		t.sentinelUser, t.sentinelPassword = take("sentinel_username"), take("sentinel_password")
		err = t.sentinels(hosts, path)
	case t.kind == cluster:
		err = t.nodes(hosts, path)
	default:
		err = t.server(hosts, path)
	}
	if err != nil {
		return target{}, err
	}
	if len(params) > 0 {
		return target{}, errors.New("has an unknown parameter after ?; remove it")
	}
	return t, nil
}

func userinfo(s string) (user, password string, err error) {
	u, p, found := strings.Cut(s, ":")
	user, err1 := url.PathUnescape(u)
	password, err2 := url.PathUnescape(p)
	switch {
	case err1 != nil || err2 != nil:
		return "", "", errors.New("has a % in user or password that begins no escape; " +
			"write it %25, or give username and password apart from the URL")
	case !found || password == "":
		return "", "", errors.New("has a user without a password; " +
			"write user:password@, or :password@ for a password alone")
	}
	return user, password, nil
}

func (t *target) socket(hosts, path, db string) error {
	p, err := url.PathUnescape(path)
	if hosts != "" || path == "" || err != nil {
		return errors.New(
			"needs the absolute path of the unix socket, as in unix:///run/redis.sock?db=0")
	}
	t.addrs = []string{"/" + p}
	return t.setDB(db)
}

func (t *target) server(hosts, path string) (err error) {
	if strings.Contains(hosts, ",") {
		return errors.New("has several addresses; " +
			"use redis+cluster:// for a cluster, redis+sentinel:// for sentinels")
	}
	if t.addrs, err = addresses(hosts, "6379"); err != nil {
		return err
	}
	return t.setDB(path)
}

func (t *target) sentinels(hosts, path string) (err error) {
	if t.addrs, err = addresses(hosts, "26379"); err != nil {
		return err
	}
	name, db, _ := strings.Cut(path, "/")
	if t.master, err = url.PathUnescape(name); err != nil || t.master == "" {
		return errors.New("lacks the name of the sentinels' master; " +
			"write it as in redis+sentinel://host:26379,host2:26379/mymaster/0")
	}
	return t.setDB(db)
}

func (t *target) nodes(hosts, path string) (err error) {
	if t.addrs, err = addresses(hosts, "6379"); err != nil {
		return err
	}
	if path != "" && path != "0" {
		return errors.New("names a database, and a cluster has 0 alone; " +
			"write nothing after the addresses")
	}
	return nil
}

func (t *target) setDB(s string) error {
	if s == "" {
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxDB {
		return errors.New(
			"has a database that is no number; write it as in redis://127.0.0.1:6379/0")
	}
	t.db = n
	return nil
}

// addresses parses host:port pairs joined by commas. The port may be missing.
func addresses(hosts, port string) ([]string, error) {
	var out []string
	for i, h := range strings.Split(hosts, ",") {
		wrong := fmt.Errorf("has an address (number %d) that isn't host:port with a port of 1 to "+
			"65535; write it as in 127.0.0.1:%s or [::1]:%[2]s", i+1, port)
		host, p := h, port
		if strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") {
			host = h[1 : len(h)-1]
		} else if strings.Contains(h, ":") {
			var err error
			if host, p, err = net.SplitHostPort(h); err != nil {
				return nil, wrong
			}
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 || host == "" ||
			strings.ContainsAny(host, " %[]") {
			return nil, wrong
		}
		out = append(out, net.JoinHostPort(host, p))
	}
	return out, nil
}

// String returns the target's URL without user and password, for logs.
func (t target) String() string {
	for scheme, s := range schemes {
		if s.kind != t.kind || s.tls != t.tls || scheme == "unix" {
			continue
		}
		switch {
		case strings.HasPrefix(t.addrs[0], "/"):
			return fmt.Sprintf("unix://%s?db=%d", t.addrs[0], t.db)
		case t.kind == sentinel:
			return fmt.Sprintf("%s://%s/%s/%d", scheme, strings.Join(t.addrs, ","), t.master, t.db)
		case t.kind == cluster:
			return fmt.Sprintf("%s://%s", scheme, strings.Join(t.addrs, ","))
		}
		return fmt.Sprintf("%s://%s/%d", scheme, t.addrs[0], t.db)
	}
	return ""
}
