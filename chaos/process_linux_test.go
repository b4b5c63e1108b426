package chaos

import "syscall"

// dieWithParent has the kernel kill a process when the test binary is killed and can't do it itself.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
