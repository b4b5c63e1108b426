//go:build unix

package wire

import "golang.org/x/sys/unix"

// fileLimit returns how many files the process may have open. Connections are files.
func fileLimit() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return manyFiles
	}
	return int(min(uint64(l.Cur), manyFiles))
}
