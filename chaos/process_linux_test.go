package chaos

import "syscall"

// dieWithParent makes the kernel kill a process if the test binary is killed and can't do so.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
