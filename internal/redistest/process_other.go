//go:build !linux

package redistest

import "syscall"

// dieWithParent isn't available on this system: servers of a killed test binary live on.
func dieWithParent() *syscall.SysProcAttr { return nil }
