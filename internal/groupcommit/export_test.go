package groupcommit

// Waiting counts the questions that the next calls will take.
func (c *Collector[Q, A]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.small.waiting) + len(c.large.waiting)
}
