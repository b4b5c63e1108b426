//go:build !linux

package conns

// Quiet does nothing here: connections that nobody has accepted at Close may be reset.
func (l *Listener) Quiet() {}
