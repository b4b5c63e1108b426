//go:build !linux

package e2e

import "syscall"

// dieWithParent can't be asked of this system: the processes of a killed test binary live on.
func dieWithParent() *syscall.SysProcAttr { return nil }
