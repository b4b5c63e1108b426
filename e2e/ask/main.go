// Command ask is a client for the stories. It uses package client as a user's program would.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/client"
)

const usage = `usage: ask [-key KEY] [-idempotency-key KEY] [-within DURATION] URL COMMAND
  submit OPERATION PAYLOAD    prints the job's id, or the answer if there is one at once
  run OPERATION PAYLOAD       submits, waits, and prints the result
  wait ID, status ID, cancel ID
  result ID                   its bytes
  list [STATUS [OPERATION]]   page by page, of two jobs each
  purge ID`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		var e *client.Error
		if errors.As(err, &e) {
			fmt.Fprintf(os.Stderr, "status=%d code=%s reason=%s too_late=%t\n",
				e.Status, e.Code, e.Reason, errors.Is(err, client.ErrTooLate))
		}
		os.Exit(1)
	}
}

// asker is one run.
type asker struct {
	c   *client.Client
	out io.Writer
	key string // Idempotency-Key; "": the client makes one
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ask", flag.ContinueOnError)
	key := flags.String("key", "", "the caller's API key")
	once := flags.String("idempotency-key", "", "of a job")
	within := flags.Duration("within", time.Minute, "how long all may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	args = flags.Args()
	if len(args) < 2 {
		return errors.New(usage)
	}
	c, err := client.New(args[0], client.Config{Key: *key})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *within)
	defer cancel()
	a := asker{c, out, *once}
	rest := append(args[2:], "", "") // the server refuses absent ones
	switch verb := args[1]; verb {
	case "submit":
		_, err := a.submit(ctx, rest[0], rest[1])
		return err
	case "run":
		return a.run(ctx, rest[0], rest[1])
	case "wait", "status", "cancel":
		do := map[string]func(context.Context, string) (*api.Job, error){
			"wait": c.Wait, "status": c.Status, "cancel": c.Cancel,
		}[verb]
		job, err := do(ctx, rest[0])
		if err != nil {
			return err
		}
		return a.show(*job)
	case "result":
		return a.result(ctx, rest[0])
	case "list":
		for job, err := range c.Jobs(ctx,
			client.List{Status: rest[0], Operation: rest[1], Limit: 2}) {
			if err == nil {
				err = a.show(job)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case "purge":
		return c.Purge(ctx, rest[0])
	}
	return errors.New(usage)
}

func (a asker) submit(ctx context.Context, operation, payload string) (id string, err error) {
	sub, err := a.c.Submit(ctx, client.Request{Operation: operation,
		Payload: json.RawMessage(payload), IdempotencyKey: a.key})
	if err != nil {
		return "", err
	}
	var words []string
	if sub.Degraded {
		words = append(words, "degraded by "+sub.Reason)
	}
	if sub.Fresh {
		words = append(words, "fresh")
	}
	if sub.Replayed {
		words = append(words, "replayed")
	}
	if sub.Result != nil {
		words = append(words, string(sub.Result.Body))
	}
	_, err = fmt.Fprintln(a.out, sub.JobID, strings.Join(words, ", "))
	return sub.JobID, err
}

func (a asker) run(ctx context.Context, operation, payload string) error {
	id, err := a.submit(ctx, operation, payload)
	if err != nil || id == "" {
		return err
	}
	job, err := a.c.Wait(ctx, id)
	if err != nil {
		return err
	}
	if err := a.show(*job); err != nil {
		return err
	}
	return a.result(ctx, id)
}

func (a asker) result(ctx context.Context, id string) error {
	result, err := a.c.Result(ctx, id)
	if err != nil {
		return err
	}
	_, err = a.out.Write(result.Body)
	return err
}

func (a asker) show(job api.Job) error {
	_, err := fmt.Fprintln(a.out, job.ID, job.Operation, job.Status)
	return err
}
