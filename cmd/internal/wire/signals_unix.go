//go:build unix

package wire

import (
	"os"
	"syscall"
)

// harmless are signals from log rotation, service managers and closed terminals that must not end
// the process.
var harmless = []os.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
