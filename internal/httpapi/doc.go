// Package httpapi is the front path and the admin API: what comes in over HTTP, and what goes back.
//
// It composes the packages below it and decides nothing itself. A POST goes through them in this order (submit.go), and the first
// that objects answers:
//
//	read ─▶ identify ─▶ operation ─▶ cost ─▶ idempotency ─▶ limits ─▶ line ─▶ 202
//	 4xx      401       403, 404      422      replay          └─────────┴────▶ overload: stale answer, or 429
//
// A gateway's question (check.go) goes the same way up to the limits. Which limits apply to a request is said in one place, a pure
// function of the caller's tier, country and own limits, of the operation, and of whether the caller is new (plan.go).
//
// Every answer leaves by call (call.go): there the request gets its id, errors become problems, the RateLimit fields are
// written, panics end and metrics count. Handlers say only what is theirs.
//
// Work in the store is bounded by one context a request (storeTime), which a client that hangs up doesn't end, so
// that nothing is left half done. Answers so come within a second whatever Redis does.
package httpapi
