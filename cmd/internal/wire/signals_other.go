//go:build !unix

package wire

import (
	"os"
	"syscall"
)

// harmless are the signals that don't end the process: see signals_unix.go.
var harmless = []os.Signal{syscall.SIGHUP}
