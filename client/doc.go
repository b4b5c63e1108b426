// Package client submits jobs to a Forebay server and waits for them.
//
//	c, err := client.New("https://forebay.example.com", client.Config{Key: key})
//	sub, err := c.Submit(ctx, client.Request{
//		Operation: "monthly-report",
//		Payload:   []byte(`{"month":"2026-11"}`),
//	})
//	job, err := c.Wait(ctx, sub.JobID)
//	result, err := c.Result(ctx, sub.JobID)
//
// A call that was refused, or whose connection broke, is tried again if that can help: after
// statuses 408, 425, 429, 500, 502, 503 and 504 and broken connections. It is safe for every call.
// Repeating a GET, a cancel or a purge changes nothing, and a Submit carries an Idempotency-Key, so
// that all its tries make one job. The wait between tries is an exponential backoff with jitter
// (Backoff), and never less than the server's Retry-After. A wait that would pass the context's
// deadline or Config.MaxElapsed isn't begun: the call fails at once, and its error has the wait.
//
// Every error of a call that was sent to the server is an *Error.
//
// Wait follows a job's states by a stream, or if streams don't work, by long polls or polls. Jobs
// iterates over the caller's jobs, and List fetches one page of them.
package client
