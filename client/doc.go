// Package client asks a Forebay server for jobs, and waits and repeats as a good guest does.
//
//	c, err := client.New("https://forebay.example.com", client.Config{Key: key})
//	sub, err := c.Submit(ctx, client.Request{Operation: "monthly-report", Payload: []byte(`{"month":"2026-11"}`)})
//	job, err := c.Wait(ctx, sub.JobID)
//	result, err := c.Result(ctx, sub.JobID)
//
// What was refused or broke on the way is tried again where that is safe and can help: every call is, as a GET, a cancel and a purge change nothing
// when repeated, and a Submit carries an Idempotency-Key, so that all its tries make one job. Statuses 408, 425, 429, 500, 502, 503 and
// 504 and broken connections are repeated; nothing else is. Between tries lies an exponential backoff with jitter (Backoff), and never less than
// the server's Retry-After. A wait that would pass the context's deadline or Config.MaxElapsed isn't begun: the call fails at once, and says
// what was asked for.
//
// Every error of a call that reached for the server is an *Error.
//
// Wait is told of a job's states by a stream, and does with long polls or polls where streams don't get through. Jobs goes over the caller's jobs, List
// fetches one page of them.
package client
