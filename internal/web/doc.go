// Package web is how Forebay speaks HTTP. It knows nothing of jobs, limits and clients.
//
// A Router makes a Call of each request and gives it to the handler of its route and method. A
// handler answers by the Call's methods, or returns an error: Call.Fail alone makes answers of
// errors. There a request gets its id, panics end, and metrics count. A server adds to its calls,
// such as its own header fields, by embedding Call and overriding some of the Hooks.
//
// Work in the store is bounded by one context for each request, which a client that hangs up
// doesn't end, so that nothing is left half done. Answers thus come within a second, whatever the
// store does.
package web
