package conns

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// quietLook is how long a handshake under way may take: a round trip within a country.
	quietLook = 50 * time.Millisecond
	quietMost = 2 * time.Second
)

// noSYN is a filter that passes all TCP segments except those that begin a connection. The sender
// repeats such a segment after a second, and is then refused by the closed port.
var noSYN = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13}, // the flags
	{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x12},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0x02, Jf: 1}, // SYN without ACK
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
}

// Quiet prepares for Close: no new connection begins, and those under way are accepted, which takes
// some 100 ms. Without it, the kernel resets connections that were not accepted yet. It is best
// effort: a kernel that doesn't support it is no error.
func (l *Listener) Quiet() {
	inner, ok := l.Listener.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := inner.SyscallConn()
	if err != nil {
		return
	}
	waiting := func() (waits bool) {
		_ = raw.Control(func(fd uintptr) {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			waits = n > 0 || err == unix.EINTR
		})
		return waits
	}
	_ = raw.Control(func(fd uintptr) {
		program := unix.SockFprog{Len: uint16(len(noSYN)), Filter: &noSYN[0]}
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	})
	// Twice: what the server accepted before the first look, it has counted by the second.
	for none, until := 0, time.Now().Add(quietMost); none < 2 && time.Now().Before(until); {
		time.Sleep(quietLook)
		none++
		if waiting() {
			none = 0
		}
	}
}
