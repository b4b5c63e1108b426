// Package worker is the back path: it drains the lines of its backends and calls the backends.
//
//	line ──release──▶ dispatcher ──send──▶ queue ──▶ handler ──start──▶ call ──▶ judge ──settle──▶ line
//	                      ▲                                     ▲                                   │
//	                      └──────── wake-ups ───────────────────┼───────────────────────────────────┘
//	                                                 renew, abort
//
// The line decides everything that must hold over all workers: whose turn it is, when the backend's next slot comes,
// how many calls may be in flight, whether an attempt still counts. This package acts on it and decides nothing but
// what an answer of the backend means (judge.go, a pure function).
//
// One drain per backend, with its own dispatcher, queue, handlers, connections and heartbeat, so that a slow backend
// holds up nobody but itself:
//
//   - The dispatcher asks the line for the slots of the next 50 ms and sends a ticket for each. It sleeps until the
//     line expects the next slot, or until it is woken.
//   - A handler gets a ticket a little early, sleeps until 5 ms before it is due, takes the job (start), waits for
//     the exact time and calls. Tickets are hints: a lost one is released again, a second one finds its job taken.
//   - The heartbeat renews the leases of all running jobs. A lease that can't be renewed ends its call before another
//     worker may begin the job again, so a job is never called for twice at once.
//   - A settlement is repeated until the line has answered: it is idempotent, and a lost answer must not cost a result.
//
// Run's end is one ordered story: nothing new is released or taken from the queue, jobs that have not started are left
// to the other workers, running calls get the grace period, and what still runs then is aborted and goes back to the
// head of its line without having used an attempt.
package worker
