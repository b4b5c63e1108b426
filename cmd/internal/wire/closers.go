package wire

import "errors"

// Closers is a stack of functions that close what a process has opened. The zero value is empty.
// Not safe for concurrent use.
type Closers struct{ stack []func() error }

// Add puts a function on the stack.
func (c *Closers) Add(f func() error) { c.stack = append(c.stack, f) }

// Close calls the functions, the last one first, and returns all their errors. The stack is empty
// then.
func (c *Closers) Close() error {
	var errs []error
	for ; len(c.stack) > 0; c.stack = c.stack[:len(c.stack)-1] {
		errs = append(errs, c.stack[len(c.stack)-1]())
	}
	return errors.Join(errs...)
}

// Abandon empties the stack without a call.
func (c *Closers) Abandon() { c.stack = nil }
