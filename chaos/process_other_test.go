//go:build !linux

package chaos

import "syscall"

// dieWithParent can't be asked of this system: the processes of a killed test binary live on.
func dieWithParent() *syscall.SysProcAttr { return nil }
