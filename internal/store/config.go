package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Config says where Redis is and how to log in.
type Config struct {
	// URL is one of
	//
	//	redis://user:password@host:6379/0           one server; rediss:// with TLS
	//	unix:///run/redis.sock?db=0                 one server on a unix socket
	//	redis+sentinel://host:26379,host2/master/0  the master that sentinels name; also
	//	                                            rediss+sentinel://. User and password are
	//	                                            the master's. The sentinels' own are the
	//	                                            parameters sentinel_username and
	//	                                            sentinel_password.
	//	redis+cluster://host:6379,host2             a cluster, found through any of its nodes;
	//	                                            also rediss+cluster://
	//
	// A port may be omitted. "" is a Redis inside this process, which keeps no data.
	URL string

	// Login has values that would be percent-encoded in the URL, or can't be given there.
	Login
}

// Login says how a client authenticates to Redis, and Redis to the client. Its zero value adds
// nothing to the URL. Users and passwords are taken literally.
type Login struct {
	Username, Password                 string // of the server, master or nodes
	SentinelUsername, SentinelPassword string // of the sentinels; "" if they require none
	TLS                                TLS
}

// TLS changes how connections with TLS are verified. Its zero value trusts the system's
// authorities, and verifies each server by the host of its own address.
type TLS struct {
	CA         string // path of the PEM file of the only trusted authorities
	Cert, Key  string // paths of the client's certificate and its key, PEM; both or neither
	ServerName string // the name that each server's certificate must have, instead of its address
}

// ConfigError is an error in one field of a Config.
type ConfigError struct {
	Field string // as a config names it: url, username, tls.ca and so on
	Err   error  // the error and its remedy; it shows no value
}

func (e ConfigError) Error() string { return "redis " + e.Field + ": " + e.Err.Error() }
func (e ConfigError) Unwrap() error { return e.Err }

// Check reports what would keep Open from trying to connect, as a ConfigError. It reads the files
// of TLS, and makes no connection.
func (c Config) Check() error {
	_, err := c.target()
	return err
}

// target returns where Redis is and how to reach it. c.URL must not be "".
func (c Config) target() (target, error) {
	wrong := func(field, text string) (target, error) {
		return target{}, ConfigError{field, errors.New(text)}
	}
	t, err := parse(c.URL)
	if err != nil {
		return target{}, ConfigError{"url", err}
	}
	const twice = "is given in the URL as well; write it in one place"
	const alone = "has no effect without a password; add that, or leave this out"
	switch login := c.Login; {
	case t.password != "" && login.Password != "":
		return wrong("password", twice)
	case t.password != "" && login.Username != "":
		return wrong("username",
			"is apart from the password in the URL; write both here, or both there")
	case login.Username != "" && login.Password == "":
		return wrong("username", alone)
	case t.kind != sentinel && login.SentinelUsername != "":
		return wrong("sentinel_username", "has no effect: the URL names no sentinels; leave it out")
	case t.kind != sentinel && login.SentinelPassword != "":
		return wrong("sentinel_password", "has no effect: the URL names no sentinels; leave it out")
	case t.sentinelPassword != "" && login.SentinelPassword != "":
		return wrong("sentinel_password", twice)
	case t.sentinelPassword+t.sentinelUser != "" &&
		login.SentinelUsername+login.SentinelPassword != "":
		return wrong("sentinel_username",
			"is apart from the password in the URL; write both here, or both there")
	case login.SentinelUsername != "" && login.SentinelPassword == "":
		return wrong("sentinel_username", alone)
	case !t.tls && login.TLS != TLS{}:
		return wrong("tls", "has no effect: the URL is without TLS; begin it with rediss://, "+
			"rediss+sentinel:// or rediss+cluster://, or leave this out")
	}
	if c.Password != "" {
		t.user, t.password = c.Username, c.Password
	}
	if c.SentinelPassword != "" {
		t.sentinelUser, t.sentinelPassword = c.SentinelUsername, c.SentinelPassword
	}
	if t.tls {
		t.config, err = c.TLS.load()
	}
	return t, err
}

// load reads the files. Connections to Redis use no TLS older than 1.2.
func (t TLS) load() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, ConfigError{"tls.ca", unread(err)}
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, ConfigError{"tls.ca",
				errors.New("holds no certificate in PEM form: -----BEGIN CERTIFICATE-----")}
		}
	}
	switch {
	case t.Cert == "" && t.Key == "":
		return out, nil
	case t.Key == "":
		return nil, ConfigError{"tls.key",
			errors.New("is required beside cert: the file of its private key")}
	case t.Cert == "":
		return nil, ConfigError{"tls.cert",
			errors.New("is required beside key: the file of the client's certificate")}
	}
	var pems [2][]byte
	for n, file := range []struct{ field, path string }{{"tls.cert", t.Cert}, {"tls.key", t.Key}} {
		var err error
		if pems[n], err = os.ReadFile(file.path); err != nil {
			return nil, ConfigError{file.field, unread(err)}
		}
	}
	pair, err := tls.X509KeyPair(pems[0], pems[1])
	if err != nil {
		return nil, ConfigError{"tls.cert",
			fmt.Errorf("and key can't be used, both must be PEM and belong together: %w", err)}
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}

// unread returns why a file could not be read, without its path, which may come from the
// environment.
func unread(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("can't be read: %w", err)
}
