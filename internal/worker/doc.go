// Package worker drains the lines of its backends and calls the backends.
//
//	line ─release─▶ dispatcher ─send─▶ queue ─▶ handler ─start─▶ call ─▶ judge ─settle─▶ line
//	                    ▲                                 ▲                                │
//	                    └──────── wake-ups ───────────────┼────────────────────────────────┘
//	                                                renew, abort
//
// The line decides everything that must hold over all workers: which job is next, when the
// backend's next slot comes, how many calls may be in flight, and whether an attempt still counts.
// This package acts on it. It decides only what an answer of the backend means (judge.go, a pure
// function).
//
// There is one drain per backend, with its own dispatcher, queue, handlers, connections and
// heartbeat, so that a slow backend doesn't delay others:
//
//   - The dispatcher asks the line for the slots of the next 50 ms and sends a ticket for each. It
//     sleeps until the line expects the next slot, or until it is woken.
//   - A handler gets a ticket a little early, sleeps until 5 ms before it is due, claims the job
//     (start), waits for the exact time and calls. Tickets are hints: a job whose ticket was lost
//     is released again, and a second ticket for the same release has no effect.
//   - The heartbeat renews the leases of all running jobs. If a lease can't be renewed, its call is
//     ended before another worker may start the job again. So a job never has two calls at once.
//   - A settlement, which is idempotent, is repeated until the line has answered: a lost reply must
//     not lose a result.
//
// Run ends in a fixed order. First no more jobs are released or taken from the queue, and jobs that
// have not started are left to other workers. Running calls get the grace period. Calls that still
// run then are aborted, and their jobs go back to the head of the line without having used an
// attempt.
package worker
