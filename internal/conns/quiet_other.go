//go:build !linux

package conns

// Quiet does nothing on this system: connections not accepted at Close may be reset.
func (l *Listener) Quiet() {}
