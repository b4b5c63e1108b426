package redistest

import "syscall"

// dieWithParent makes the kernel kill the server if the test binary is killed and can't do so.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
