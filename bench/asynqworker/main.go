// Command asynqworker is a plain worker of asynq, for comparison. It calls the backend with the
// payload of each task as soon as asynq hands the task out, as a program without Forebay would.
//
//	asynqworker -redis 127.0.0.1:6379 -backend http://127.0.0.1:9000/job -concurrency 100
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "asynqworker:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("asynqworker", flag.ContinueOnError)
	addr := flags.String("redis", "127.0.0.1:6379", "Redis's address")
	backend := flags.String("backend", "http://127.0.0.1:9000/job", "URL to call")
	concurrency := flags.Int("concurrency", 100, "calls at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{
		Addr:                     *addr,
		PoolSize:                 2 * *concurrency, // so that no command waits for a connection
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer rdb.Close()
	c := caller{url: *backend,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *concurrency}}}
	server := asynq.NewServerFromRedisClient(rdb,
		asynq.Config{Concurrency: *concurrency, LogLevel: asynq.WarnLevel})
	if err := server.Start(asynq.HandlerFunc(c.call)); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	server.Shutdown()
	return nil
}

type caller struct {
	url    string
	client *http.Client
}

// call does the same as Forebay's worker does with a job: it sends one request and reads the
// answer. Any status but 2xx is an error.
func (c caller) call(ctx context.Context, task *asynq.Task) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url,
		bytes.NewReader(task.Payload()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		log.Print(err)
		return err
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err != nil {
		return err
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the backend answered %s", res.Status)
	}
	return nil
}
