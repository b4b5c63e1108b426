// Package web has the common parts of Forebay's HTTP servers. It knows nothing of jobs, limits and
// clients.
//
// A Router makes a Call for each request and passes it to the handler of its route and method. A
// handler answers by the Call's methods, or returns an error, which Call.Fail turns into the
// answer. The Call gives each request its id, turns panics into answers and counts metrics. A
// server extends its calls, for example by header fields, by embedding Call and defining some of
// the Hooks.
//
// One context for each request bounds its work in the store, so answers come within a second,
// whatever the store does. A client that hangs up doesn't end that context, so nothing is left half
// done.
package web
