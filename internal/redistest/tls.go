package redistest

import (
	"strconv"
	"testing"
)

// StartTLS starts a server that ends with t and accepts only TLS, from clients with a certificate
// of the authority. ca, cert and key are paths of PEM files. It returns the server's address.
func StartTLS(t testing.TB, ca, cert, key string) (addr string) {
	t.Helper()
	// The start is noticed by a plain listener, on a socket that no other process knows.
	dir := t.TempDir()
	socket := dir + "/plain.sock"
	var p *process
	err := onFreePort(func(port int) (err error) {
		addr = loopback(port)
		p, err = start(dir, socket, "--port", "0", "--unixsocket", socket, "--bind", "127.0.0.1",
			"--save", "", "--appendonly", "yes", "--tls-port", strconv.Itoa(port),
			"--tls-ca-cert-file", ca, "--tls-cert-file", cert, "--tls-key-file", key)
		return err
	})
	if err != nil {
		t.Fatalf("redistest: TLS: %v", err)
	}
	t.Cleanup(p.kill)
	return addr
}
