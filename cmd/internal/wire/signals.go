package wire

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Signals takes over the signals of the process; call it first, and once. The context ends with the
// first SIGINT or SIGTERM; a second one ends the process at once. others receives the signals that
// must not end the process (SIGHUP, SIGUSR1, SIGUSR2), for Clients.Follow. Those that arrive while
// one waits there are dropped.
func Signals() (ctx context.Context, others <-chan os.Signal) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	// A log whose reader has exited (a pipe, a log collector) must not end the process.
	signal.Ignore(syscall.SIGPIPE)
	c := make(chan os.Signal, 1)
	signal.Notify(c, harmless...)
	return ctx, c
}
