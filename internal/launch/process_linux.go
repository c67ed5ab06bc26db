package launch

import "syscall"

// dieWithParent ends a rank at once when its launcher is killed: a launcher that got SIGKILL cannot do it itself.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
