//go:build !linux

package tcp

import (
	"errors"
	"os"
	"time"

	"github.com/goccl/goccl/transport/internal/link"
)

// tryWrite writes what there is room for. There is no portable way to do so without waiting at all.
func tryWrite(sock link.Conn, p []byte) (int, error) {
	sock.SetWriteDeadline(time.Now().Add(time.Millisecond))
	n, err := sock.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}
