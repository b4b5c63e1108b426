package wire

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Signals handles the signals of the process. Call it once, before anything else. The context ends
// with the first SIGINT or SIGTERM, and a second one then ends the process at once. others gets the
// signals that must not end it (SIGHUP, SIGUSR1, SIGUSR2), for Clients.Follow. While one waits
// there, further ones are dropped.
func Signals() (ctx context.Context, others <-chan os.Signal) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	// Without a reader of the log (a pipe, a log collector), the process goes on.
	signal.Ignore(syscall.SIGPIPE)
	c := make(chan os.Signal, 1)
	signal.Notify(c, harmless...)
	return ctx, c
}
