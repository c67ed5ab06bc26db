package tcp

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A sleeper waits for sockets that Go's poller does not know. A socket that it does know wakes one of the runtime's threads
// with every segment that arrives, needed or not: with two ranks on two cores a 4-byte exchange took 30 µs in place of 6.
// So the sockets of collectives are in an epoll set of their own. That set is itself in Go's poller, hence a sleeping
// goroutine holds no thread; and its entries are armed for one event, right before sleeping, hence it is silent otherwise.
type sleeper struct {
	epfd   int
	file   *os.File
	raw    syscall.RawConn
	events [64]unix.EpollEvent
	poll   func(fd uintptr) bool // made once: a closure per wait would allocate
	armed  map[int]uint32        // by fd: the event that has been asked for and has not come
}

func newSleeper() (*sleeper, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tcp: epoll set: %w", err)
	}
	// os.NewFile gives a descriptor to Go's poller only if it is non-blocking; for an epoll set the flag means nothing else.
	if err := unix.SetNonblock(epfd, true); err != nil {
		unix.Close(epfd)
		return nil, fmt.Errorf("tcp: epoll set: %w", err)
	}
	s := &sleeper{epfd: epfd, file: os.NewFile(uintptr(epfd), "epoll"), armed: make(map[int]uint32)}
	s.poll = s.collect
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("tcp: epoll set is not pollable: %w", err)
	}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("tcp: epoll set: %w", err)
	}
	return s, nil
}

// add makes a socket known, for no event yet.
func (s *sleeper) add(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: int32(fd)}
	if err := unix.EpollCtl(s.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("tcp: epoll set: %w", err)
	}
	s.armed[fd] = 0
	return nil
}

// arm asks for one event of a socket, at once if it is there already. Errors and hang-ups count as any event.
func (s *sleeper) arm(fd int, events uint32) {
	if s.armed[fd] == events {
		return
	}
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT | events, Fd: int32(fd)}
	if err := unix.EpollCtl(s.epfd, unix.EPOLL_CTL_MOD, fd, &ev); err != nil {
		panic(fmt.Sprintf("BUG: tcp: arming a socket that is not in the epoll set: %v", err))
	}
	s.armed[fd] = events
}

// wait sleeps until an event comes or the file's read deadline passes.
func (s *sleeper) wait() error {
	return s.raw.Read(s.poll)
}

// collect takes the events that have come and reports whether there were any.
func (s *sleeper) collect(uintptr) bool {
	n, err := unix.EpollWait(s.epfd, s.events[:], 0)
	if err == unix.EINTR {
		return true // wait may always return early
	}
	for _, ev := range s.events[:max(n, 0)] {
		s.armed[int(ev.Fd)] = 0
	}
	return n != 0
}

func (s *sleeper) close() { s.file.Close() }
