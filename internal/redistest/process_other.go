//go:build !linux

package redistest

import "syscall"

// dieWithParent can't be asked of this system: servers of a killed test binary live on.
func dieWithParent() *syscall.SysProcAttr { return nil }
