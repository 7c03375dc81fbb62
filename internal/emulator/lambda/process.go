package lambda

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// sigtermGrace is what Lambda leaves a function between SIGTERM and SIGKILL.
// Source: AWS Lambda Developer Guide, "Understanding the Lambda execution environment lifecycle", shutdown phase.
const sigtermGrace = 500 * time.Millisecond

// process is one running binary with its Runtime API server. It leads a process group, which ends with it.
type process struct {
	id             string
	pid            int
	api            *runtimeAPI
	server         *http.Server
	stdout, stderr *lineReader
	log            atomic.Pointer[invocationLog] // of the invocation that it holds

	exited chan struct{} // closed when the process is gone, its output is read and its server is down
	state  *os.ProcessState

	mu     sync.Mutex
	reaped bool
}

// startProcess starts the binary; a failure to do so is an [InitError].
func startProcess(f *Function) (*process, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the runtime: %w", err)
	}
	id := fmt.Sprintf("%s-%d", f.config.Name, f.started.Add(1))
	p := &process{id: id, api: newRuntimeAPI(f), exited: make(chan struct{})}
	p.server = &http.Server{Handler: p.api.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.server.Serve(listener) }()

	started := make(chan error, 1)
	go p.live(f, listener.Addr().String(), started)
	if err := <-started; err != nil {
		<-p.exited
		return nil, &InitError{Type: typeEntrypoint, Message: err.Error()}
	}
	return p, nil
}

// live is the life of the process, from its start to the end of all that it left. It stays on one thread because Linux
// sends the parent-death signal when the thread that started the process ends, not when the program does.
func (p *process) live(f *Function, address string, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.exited)
	defer func() { _ = p.server.Close() }()

	config := f.config
	command := exec.Command(config.Binary, config.Args...)
	command.Dir = filepath.Dir(config.Binary)
	command.Env = config.environ(p.id, address, time.Now().UTC().Format("2006/01/02/[$LATEST]")+uuid.NewString())
	command.SysProcAttr = processGroup()
	closeWriters, err := p.pipe(f, command)
	if err == nil {
		err = command.Start()
		closeWriters()
	}
	if err != nil {
		p.closeOutput()
		started <- err
		return
	}
	p.pid = command.Process.Pid
	started <- nil

	// The group is killed while its leader is still a zombie: its number cannot belong to anyone else then.
	waited := awaitExit(p.pid)
	if waited {
		p.killReaped()
	}
	_ = command.Wait() // the state tells
	if !waited {
		p.killReaped()
	}
	p.state = command.ProcessState
	p.closeOutput()
	if config.Ended != nil {
		config.Ended(p.state)
	}
}

// pipe connects the process's two streams to line readers. The returned func closes this side's copies of the write ends.
func (p *process) pipe(f *Function, command *exec.Cmd) (closeWriters func(), err error) {
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return func() {}, fmt.Errorf("make a pipe: %w", err)
	}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		_, _ = outRead.Close(), outWrite.Close()
		return func() {}, fmt.Errorf("make a pipe: %w", err)
	}
	command.Stdout, command.Stderr = outWrite, errWrite
	p.stdout = newLineReader(outRead, func(text string) { f.emit(p, p.log.Load(), Stdout, text) })
	p.stderr = newLineReader(errRead, func(text string) { f.emit(p, p.log.Load(), Stderr, text) })
	return func() { _, _ = outWrite.Close(), errWrite.Close() }, nil
}

// awaitReady waits for the first request for an event. When it never comes the process is killed.
func (p *process) awaitReady(timeout <-chan time.Time, cancel, abort <-chan struct{}) error {
	select {
	case <-p.api.ready:
		return nil
	case <-p.api.failed: // the process exits by itself, but need not
		p.kill()
		return p.api.initFailed()
	case <-p.exited:
		if failed := p.api.initFailed(); failed != nil {
			return failed
		}
		return &InitError{Type: typeExit, Message: p.exitText()}
	case <-timeout:
		p.kill()
		return &InitError{Type: typeTimeout, Message: "the function did not ask for an event in time", Timeout: true}
	case <-cancel:
		p.kill()
		return errAborted
	case <-abort:
		p.kill()
		return ErrClosed
	}
}

// deliver hands the invocation to the process's request for the next event. [errNotDelivered] means that the process had
// ended before: nothing of the event can have been seen.
func (p *process) deliver(inv *invocation, timeout <-chan time.Time, abort <-chan struct{}) error {
	for {
		if !p.alive() {
			<-p.exited
			return errNotDelivered
		}
		select {
		case p.api.work <- inv:
			if <-inv.taken {
				return nil
			}
		case <-p.exited:
			return errNotDelivered
		case <-timeout:
			return errTimeout
		case <-abort:
			return errAborted
		}
	}
}

// alive tells whether the process has not ended, also when its end has not been collected yet.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && !hasExited(p.pid)
}

// gone tells whether nothing of the process is left.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// signal sends a signal to the process's group and tells whether it was there to get it.
func (p *process) signal(signal syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && syscall.Kill(-p.pid, signal) == nil
}

// kill ends the process and its group and waits until they are gone.
func (p *process) kill() {
	p.mu.Lock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
	p.mu.Unlock()
	<-p.exited
}

// killReaped ends what the dead leader left behind; after it the group's number is not used any more.
func (p *process) killReaped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
}

// shutdown ends an idle process: at once, or after a SIGTERM and half a second if it asked for that.
func (p *process) shutdown() {
	if p.api.wantsSIGTERM() {
		p.mu.Lock()
		if !p.reaped {
			_ = syscall.Kill(p.pid, syscall.SIGTERM)
		}
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), sigtermGrace)
		defer cancel()
		select {
		case <-p.exited:
		case <-ctx.Done():
		}
	}
	p.kill()
}

// flush returns when every line that the process has written so far went out.
func (p *process) flush() {
	p.stdout.flush()
	p.stderr.flush()
}

func (p *process) closeOutput() {
	for _, reader := range []*lineReader{p.stdout, p.stderr} {
		if reader != nil {
			reader.close()
		}
	}
}

// exitText is Lambda's sentence for the end of a process. It may be asked after exited only.
func (p *process) exitText() string {
	if p.state == nil || p.state.Success() {
		return "Runtime exited without providing a reason"
	}
	return "Runtime exited with error: " + p.state.String()
}

func (p *process) maxMemoryMiB() int {
	if !p.alive() {
		return 0
	}
	return peakMemoryMiB(p.pid)
}
