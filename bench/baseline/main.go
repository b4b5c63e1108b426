// Command baseline is a plain Go program for comparison: an HTTP server that does one thing with
// each request.
//
//	plain    reads the body and answers
//	ping     also sends one PING to Redis
//	hgetall  also sends one HGETALL of a hash of 12 fields, like a job's, and answers with one
//	enqueue  also enqueues the body as a task of asynq, as a program without Forebay would
//
// It is as fast as such a program gets: one shared pool, keep-alive, no logs, no extras in the
// handshake.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
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
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("baseline", flag.ContinueOnError)
	kind := flags.String("kind", "plain", "plain, ping, hgetall or enqueue")
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	addr := flags.String("redis", "127.0.0.1:6379", "Redis's address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{
		Addr:                     *addr,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer rdb.Close()
	work, err := worker(*kind, rdb)
	if err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: *listen, Handler: handler(work)}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// worker returns the function for a kind. The function takes a request's body and returns the
// answer's status and id.
func worker(kind string,
	rdb *redis.Client) (func(ctx context.Context, body []byte) (int, string, error), error) {
	switch kind {
	case "plain":
		return func(context.Context, []byte) (int, string, error) {
			return http.StatusOK, "0", nil
		}, nil
	case "ping":
		return func(ctx context.Context, _ []byte) (int, string, error) {
			return http.StatusOK, "0", rdb.Ping(ctx).Err()
		}, nil
	case "hgetall":
		const key = "bench:hash"
		for i := range 12 {
			if err := rdb.HSet(context.Background(), key, fmt.Sprintf("field-%02d", i),
				"0123456789abcdef").Err(); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context, _ []byte) (int, string, error) {
			fields, err := rdb.HGetAll(ctx, key).Result()
			return http.StatusOK, fields["field-00"], err
		}, nil
	case "enqueue":
		client := asynq.NewClientFromRedisClient(rdb)
		return func(ctx context.Context, body []byte) (int, string, error) {
			info, err := client.EnqueueContext(ctx, asynq.NewTask("job", body))
			if err != nil {
				return 0, "", err
			}
			return http.StatusAccepted, info.ID, nil
		}, nil
	}
	return nil, fmt.Errorf("-kind %q: want plain, ping, hgetall or enqueue", kind)
}

func handler(work func(ctx context.Context, body []byte) (int, string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		status, id, err := work(r.Context(), body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"id":%q}`, id)
	}
}
