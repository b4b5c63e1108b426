//go:build !linux

package e2e

import "syscall"

// dieWithParent isn't available on this system: the processes of a killed test binary live on.
func dieWithParent() *syscall.SysProcAttr { return nil }
