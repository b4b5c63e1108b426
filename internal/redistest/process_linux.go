package redistest

import "syscall"

// dieWithParent has the kernel kill the server when the test binary is killed and can't do it itself.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
