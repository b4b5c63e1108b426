package groupcommit

// Waiting returns the number of questions that wait for a call.
func (c *Collector[Q, A]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.small.waiting) + len(c.large.waiting)
}
