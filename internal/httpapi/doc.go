// Package httpapi is the public HTTP API: it reads requests, lets package admission decide, and
// renders the outcomes.
//
// A POST of a job is read (submit.go) and goes to admission.Submit, whose outcome is rendered in
// one place (render.go):
//
//	read ─▶ identify ─▶ operation ─▶ cost ─▶ admission.Submit ─▶ render
//	 4xx      401       403, 404      422                         202, 200, 429, ...
//
// A gateway's check (check.go) goes the same way to admission.Check.
//
// Every answer is written by call (call.go), which is web.Call with this server's hooks. It gives
// the request its id, turns errors and panics into problems, writes the RateLimit fields and counts
// metrics, so handlers don't.
//
// One context per request bounds its work in the store (web.StoreTime), so an answer comes within a
// second whatever Redis does. A client that hangs up doesn't end that context, so nothing is left
// half done.
//
// # Results
//
// A result is served as the backend sent it. The fields that describe it are kept with its type, in
// at most 1 KiB (jobs.Fields), since every look at the job reads them. The worker decompresses gzip
// and deflate when the answer arrives, so later readers find plain bytes; another coding keeps its
// Content-Encoding. A browser that opens a result doesn't run it: answers have a sandbox, and types
// that browsers run are attachments. Otherwise content of the backend, or of a client, would run on
// this origin.
//
// The result of a failed job is 424. The problem says why, and has the backend's answer. A 5xx
// would make clients retry, and proxies believe that Forebay is down.
//
// # Job watches
//
// A held answer is notified of its job's moves; it doesn't poll. Each process has one pub/sub
// connection, which gets a message for every move of its backends' jobs. A job watch looks at its
// job when a message names it. A message can be missed only if the connection breaks, so every
// watch looks once after a reconnect, and a connection that no longer answers pings is closed.
// While Redis is unavailable, long polls are answered with the last known state, and streams end
// with a time after which to reconnect. Workers don't subscribe to moves.
//
// # Metrics and logs
//
// No text that a client chooses reaches the metrics. Labels are names from the config (operations,
// backends, limits) and fixed words.
//
// Refused and degraded answers are logged at info, the first 100 a second. Accepted ones are logged
// at debug, since the worker logs the end of each job. Metrics count all of them.
package httpapi
