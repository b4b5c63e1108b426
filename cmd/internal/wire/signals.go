package wire

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Signals takes the signals of the process over; call it first of all, and once. The context ends
// with the first SIGINT or SIGTERM, and a second one then ends the process at once. told gets those
// that mustn't end it (SIGHUP, SIGUSR1, SIGUSR2), for Clients.Follow; those that come while one
// waits there are dropped.
func Signals() (ctx context.Context, told <-chan os.Signal) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	// A log whose reader has gone away (a pipe, a log collector) is no reason to drop calls.
	signal.Ignore(syscall.SIGPIPE)
	c := make(chan os.Signal, 1)
	signal.Notify(c, harmless...)
	return ctx, c
}
