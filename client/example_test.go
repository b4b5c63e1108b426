package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/client"
)

// A job from start to end.
func Example() {
	server := forebay()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	c, err := client.New(server.URL, client.Config{Key: "fb_live_3yqk..."})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := c.Submit(ctx, client.Request{
		Operation: "monthly-report",
		Payload:   []byte(`{"month":"2026-11"}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	if sub.Result != nil { // a stored answer, fresh or stale: there is no job
		fmt.Printf("%s, as of %s ago\n", sub.Result.Body, sub.Age)
		return
	}
	job, err := c.Wait(ctx, sub.JobID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.ID, job.Status)
	result, err := c.Result(ctx, sub.JobID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s\n", result.ContentType, result.Body)
	// Output:
	// reports-1 succeeded
	// text/plain 12 pages
}

// For a person who waits, an answer within seconds is worth more than a fresh one. This gets the
// result if it is ready in time, otherwise a stale answer if the operation allows it, otherwise a
// job.
func ExampleClient_Submit() {
	server := forebay()
	defer server.Close()
	c, err := client.New(server.URL,
		client.Config{Key: "fb_live_3yqk...", MaxElapsed: 3 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := c.Submit(context.Background(),
		client.Request{Operation: "busy", Wait: 5 * time.Second, MaxStale: time.Hour})
	switch {
	case err != nil:
		log.Fatal(err)
	case sub.Result != nil && sub.Degraded:
		fmt.Printf("%s, %s old (%s)\n", sub.Result.Body, sub.Age, sub.Reason)
	case sub.Result != nil:
		fmt.Printf("%s\n", sub.Result.Body)
	default:
		fmt.Println("come back for", sub.JobID)
	}
	// Output: 11 pages, 16m52s old (line_full)
}

// A refusal with too long a wait is returned at once.
func ExampleError() {
	server := forebay()
	defer server.Close()
	c, err := client.New(server.URL,
		client.Config{Key: "fb_live_3yqk...", MaxElapsed: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Submit(context.Background(), client.Request{Operation: "used-up"})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == api.CodeRateLimit {
		fmt.Println("limit", refused.Reason, "is used up; again in", refused.RetryAfter)
	}
	fmt.Println(errors.Is(err, client.ErrTooLate))
	// Output:
	// limit per-day is used up; again in 5h0m0s
	// true
}

func ExampleBackoff_Delay() {
	b := client.Backoff{Base: time.Second, Cap: time.Minute}
	for n := 1; n <= 8; n += 3 {
		fmt.Println("after try", n, "at most", b.Delay(n, 0, 0))
	}
	fmt.Println("asked for 20s:", b.Delay(1, 20*time.Second, 0.5))
	// Output:
	// after try 1 at most 1s
	// after try 4 at most 8s
	// after try 7 at most 1m0s
	// asked for 20s: 21s
}

// Wait returns the job as soon as it has ended. Its status is the outcome.
func ExampleClient_Wait() {
	server := forebay()
	defer server.Close()
	c, err := client.New(server.URL, client.Config{Key: "fb_live_3yqk..."})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	job, err := c.Wait(ctx, "reports-1")
	var failed *client.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrTooLate):
		fmt.Println("not within 5 minutes; it goes on, and its id is enough to come back")
	case errors.As(err, &failed) && failed.Code == api.CodeUnknownJob:
		fmt.Println("no job of ours")
	case err != nil:
		log.Fatal(err)
	case job.Status == api.Succeeded:
		fmt.Println("done, after", job.Attempts, "attempt")
	case job.Error != nil:
		fmt.Println(job.Status, "because of", job.Error.Code)
	default:
		fmt.Println(job.Status)
	}
	// Output: done, after 1 attempt
}

// All of the caller's failed jobs, over any number of pages.
func ExampleClient_Jobs() {
	server := forebay()
	defer server.Close()
	c, err := client.New(server.URL, client.Config{Key: "fb_live_3yqk..."})
	if err != nil {
		log.Fatal(err)
	}
	for job, err := range c.Jobs(context.Background(), client.List{Status: api.Failed}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.ID, job.Error.Code)
	}
	// Output:
	// reports-9 backend_status
	// reports-7 worker_lost
	// reports-3 backend_status
}

// One page at a time, for a reader who turns pages.
func ExampleClient_List() {
	server := forebay()
	defer server.Close()
	c, err := client.New(server.URL, client.Config{Key: "fb_live_3yqk..."})
	if err != nil {
		log.Fatal(err)
	}
	page, err := c.List(context.Background(), client.List{Status: api.Failed, Limit: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.Jobs), "jobs, next page at", page.NextCursor)
	page, err = c.List(context.Background(),
		client.List{Status: api.Failed, Limit: 2, Cursor: page.NextCursor})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.Jobs), "job, last page:", page.NextCursor == "")
	// Output:
	// 2 jobs, next page at MTc5NjAyNDA4OQ
	// 1 job, last page: true
}

// forebay returns a stand-alone imitation of the server. It has a job that runs and ends, and some
// that failed.
func forebay() *httptest.Server {
	const job = `{"job_id":"reports-1","status":%q,"done":%t,"attempts":1,` +
		`"created_at":"2026-11-30T07:34:49.120Z","expires_at":null}`
	const failed = `{"job_id":%q,"status":"failed","done":true,"error":{"code":%q},` +
		`"created_at":"2026-11-30T07:34:49.120Z","expires_at":null}`
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 22)
		r.Body.Read(body)
		switch string(body) {
		case `{"operation":"busy","p`:
			w.Header().Set("Forebay-Decision", `degraded;reason="line_full"`)
			w.Header().Set("Age", "1012")
			fmt.Fprint(w, "11 pages")
		case `{"operation":"used-up"`:
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "18000")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"title":"Quota Exceeded","status":429,"code":"rate_limit_exceeded",`+
				`"reason":"per-day"}`)
		default:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, job, api.Queued, false)
		}
	})
	mux.HandleFunc("GET /v1/jobs/reports-1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "retry: 3000\n\nid: 2\nevent: status\ndata: "+job+"\n\n", api.Running, false)
		http.NewResponseController(w).Flush()
		fmt.Fprintf(w, "id: 3\nevent: done\ndata: "+job+"\n\n", api.Succeeded, true)
	})
	mux.HandleFunc("GET /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") == "" {
			fmt.Fprintf(w, `{"jobs":[`+failed+`,`+failed+`],"next_cursor":"MTc5NjAyNDA4OQ"}`,
				"reports-9", "backend_status", "reports-7", "worker_lost")
			return
		}
		fmt.Fprintf(w, `{"jobs":[`+failed+`]}`, "reports-3", "backend_status")
	})
	mux.HandleFunc("GET /v1/jobs/reports-1/result", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "12 pages")
	})
	return httptest.NewServer(mux)
}
