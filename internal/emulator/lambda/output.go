package lambda

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// Stream says where a line comes from.
type Stream string

// The streams.
const (
	Stdout   Stream = "stdout"
	Stderr   Stream = "stderr"
	Platform Stream = "platform" // START, END, REPORT and the like
)

// Line is one line of a function's log.
type Line struct {
	Time   time.Time
	Stream Stream
	// Function is the function's name.
	Function string
	// RequestID of the invocation that the process held when it wrote the line; empty outside of one.
	RequestID string
	// ProcessID of the process; zero when there is none.
	ProcessID int
	// Process is what Function.Signal knows the process by; empty when there is none.
	Process string
	// Text without the line's end.
	Text string
}

// maxLine is where a line without an end is cut, as CloudWatch Logs cuts events at 1 MiB.
const maxLine = 1 << 20

// lineReader splits what arrives in a pipe into lines. Each stream has a pipe of its own, so that lines never mix.
type lineReader struct {
	file *os.File
	emit func(string)
	done chan struct{}

	mu      sync.Mutex
	flushes []chan struct{}

	partial []byte // of the reading goroutine
}

func newLineReader(file *os.File, emit func(string)) *lineReader {
	r := &lineReader{file: file, emit: emit, done: make(chan struct{})}
	go r.read()
	return r
}

func (r *lineReader) read() {
	defer close(r.done)
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.file.Read(buffer)
		r.add(buffer[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// Someone wants everything that is in the pipe now; see flush.
			_ = r.file.SetReadDeadline(time.Time{})
			r.mu.Lock()
			flushes := r.flushes
			r.flushes = nil
			r.mu.Unlock()
			r.drain(buffer)
			for _, done := range flushes {
				close(done)
			}
			continue
		}
		if err != nil {
			if len(r.partial) > 0 {
				r.emit(string(r.partial))
			}
			return
		}
	}
}

// drain reads without waiting. A pipe holds 64 KiB, at most 1 MiB: what comes after that was written later.
func (r *lineReader) drain(buffer []byte) {
	connection, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	_ = connection.Read(func(fd uintptr) bool {
		for total := 0; total < maxLine; {
			n, err := syscall.Read(int(fd), buffer)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				return true
			}
			r.add(buffer[:n])
			total += n
		}
		return true
	})
}

func (r *lineReader) add(data []byte) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			r.partial = append(r.partial, data...)
			if len(r.partial) >= maxLine {
				r.emit(string(r.partial))
				r.partial = r.partial[:0]
			}
			return
		}
		r.partial = append(r.partial, data[:end]...)
		r.emit(string(bytes.TrimSuffix(r.partial, []byte("\r"))))
		r.partial = r.partial[:0]
		data = data[end+1:]
	}
}

// flush returns when all that was written before the call has been emitted, save a last line without its end.
func (r *lineReader) flush() {
	done := make(chan struct{})
	r.mu.Lock()
	r.flushes = append(r.flushes, done)
	r.mu.Unlock()
	_ = r.file.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	select {
	case <-done:
	case <-r.done:
	}
}

// close emits what is left and ends the reader, also when a process that escaped its group still holds the other end.
func (r *lineReader) close() {
	r.flush()
	_ = r.file.Close()
	<-r.done
}
