// Package httpapi is the public HTTP API: it reads requests, has the packages below it decide, and
// renders what they say.
//
// A POST of a job is read (submit.go), goes to admission.Submit, and its outcome is rendered in one
// place (render.go):
//
//	read ─▶ identify ─▶ operation ─▶ cost ─▶ admission.Submit ─▶ render
//	 4xx      401       403, 404      422                         202, 200, 429, ...
//
// A gateway's question (check.go) goes the same way to admission.Check.
//
// Every answer leaves by call (call.go), which is web.Call with this server's hooks: there the
// request gets its id, errors become problems, the RateLimit fields are written, panics end and
// metrics count. Handlers say only what is theirs.
//
// One context a request bounds its work in the store (web.StoreTime). A client that hangs up
// doesn't end it, so nothing is left half done. So an answer comes within a second whatever Redis
// does.
//
// # Results
//
// A result is served as what it is. The fields that describe it are kept with its type, in at most
// 1 KiB (jobs.Fields), since every look at the job reads them. The worker decompresses gzip and
// deflate when the answer arrives, so later readers find plain bytes; another coding keeps its
// Content-Encoding. A browser that is led to a result runs none of it: sandbox, and attachment for
// types that it would run. The content is the backend's, or a client's own, on this origin.
//
// The result of a failed job is 424. The problem says why, and has the backend's answer. A 5xx
// would make clients retry, and proxies believe that Forebay is down.
//
// # Job watches
//
// A held answer is notified of its job's moves; it doesn't poll. Each process has one pub/sub
// connection, on which every move of its backends' jobs is named. A job watch looks at its job when
// the job is named. A message can be missed only if the connection breaks, so every watch looks
// once after a reconnect, and a connection that no longer answers pings is closed. While Redis is
// unavailable, long polls are answered with the last known state, and streams end with a time to
// come back. Workers don't subscribe to moves.
//
// # Metrics and logs
//
// No text of a client's choosing reaches the metrics. Labels are names from the config (operations,
// backends, limits) and fixed words.
//
// Refused and degraded answers are logged at info, the first 100 a second. Accepted ones are logged
// at debug, since the worker logs the end of each job. Metrics count all of them.
package httpapi
