//go:build !linux

package chaos

import "syscall"

// dieWithParent isn't available on this system: the processes of a killed test binary live on.
func dieWithParent() *syscall.SysProcAttr { return nil }
