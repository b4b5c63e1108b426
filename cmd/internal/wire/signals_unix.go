//go:build unix

package wire

import (
	"os"
	"syscall"
)

// harmless are the signals that log rotation, service managers and closed terminals send to
// processes that should go on.
var harmless = []os.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
