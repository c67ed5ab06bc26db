//go:build unix && !linux

package launch

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
