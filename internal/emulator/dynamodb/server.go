package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// ErrExited is what Server.Err is when dynoxide ended by itself and is not coming back.
var ErrExited = errors.New("dynoxide ended unexpectedly")

var errPortTaken = errors.New("port is taken")

const (
	startTimeout = 15 * time.Second
	stopGrace    = 5 * time.Second
	maxRestarts  = 6 // in a row, without having answered in between
	portAttempts = 5
)

// Options say how to run dynoxide.
type Options struct {
	// Binary is the path that Install returned. Required.
	Binary string
	// DBPath is the SQLite file that holds the data; it is made when missing. Empty: the data lives in memory and ends
	// with the process.
	DBPath string
	// Logger hears of starts, ends and restarts. Nil: slog.Default.
	Logger *slog.Logger
}

// Server is a running dynoxide. Its methods are safe for concurrent use.
type Server struct {
	opts   Options
	port   int
	client *http.Client
	stop   context.CancelFunc

	ready chan struct{} // closed at the first answer
	done  chan struct{} // closed after the last process is gone
	err   error         // read after done
}

// Start runs dynoxide on a free port of 127.0.0.1 and returns when it answers. ctx bounds the start only; Close ends the
// server. A process that dies later is started again on the same port when DBPath is set; in memory its data went with
// it, so Done is closed and Err says why.
//
// On Linux the kernel ends dynoxide when this process dies, however it dies. Elsewhere a killed parent leaves it behind.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	// Another process can take the port between our probe and dynoxide's bind.
	for attempt := 1; ; attempt++ {
		s, err := startOn(ctx, opts)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return nil, fmt.Errorf("start dynoxide: %w", err)
		}
	}
}

func startOn(ctx context.Context, opts Options) (*Server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{
		opts: opts, port: port, stop: stop,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second},
		ready:  make(chan struct{}), done: make(chan struct{}),
	}
	go s.supervise(life)
	select {
	case <-s.ready:
		return s, nil
	case <-s.done:
		stop()
		return nil, s.err
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.Close())
	}
}

// Endpoint is the URL to give to an AWS client, without a trailing slash.
func (s *Server) Endpoint() string { return "http://" + s.address() }

// Done is closed when the server has ended for good, by Close or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is nil while the server runs and after Close; after an end of its own it is an ErrExited with the process's words.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close stops dynoxide and returns when its process is gone: politely first, by force after five seconds. It returns
// what Err returns, so an earlier end of its own is not lost. It may be called more than once.
func (s *Server) Close() error {
	s.stop()
	<-s.done
	return s.err
}

// supervise owns the process from first start to last end. It keeps its thread for all that time because Linux ties the
// parent-death signal to the thread that forked, and Go may end any other thread at will.
func (s *Server) supervise(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)

	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 50*time.Millisecond, 2*time.Second
	for failures := 0; ; {
		answered, err := s.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if answered {
			failures = 0
			pauses.Reset()
		}
		failures++
		if !s.wasReady() || s.opts.DBPath == "" || failures > maxRestarts {
			s.err = fmt.Errorf("%w: %w", ErrExited, err)
			s.opts.Logger.Error("dynamodb ended", "endpoint", s.Endpoint(), "error", err)
			return
		}
		pause := pauses.NextBackOff()
		s.opts.Logger.Warn("dynamodb ended, starting it again", "endpoint", s.Endpoint(), "in", pause, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// run is one process's life: it starts it and returns after its end, saying whether it ever answered.
func (s *Server) run(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := []string{"--host", "127.0.0.1", "--port", strconv.Itoa(s.port)}
	if s.opts.DBPath != "" {
		args = append(args, "--db-path", s.opts.DBPath)
	}
	var output tail
	cmd := exec.CommandContext(ctx, s.opts.Binary, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = processAttributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	if err := cmd.Start(); err != nil {
		return false, err
	}

	var probe sync.WaitGroup
	probe.Go(func() {
		answered = s.awaitAnswer(ctx, &output)
		switch {
		case !answered:
			cancel() // it hangs, or the server is being closed
		case !s.wasReady():
			close(s.ready)
		}
	})
	err = cmd.Wait()
	cancel()
	probe.Wait()

	text := output.String()
	switch {
	case strings.Contains(text, "already in use"):
		return answered, fmt.Errorf("port %d: %w", s.port, errPortTaken)
	case err == nil:
		return answered, fmt.Errorf("exit status 0 and the words %q", text)
	default:
		return answered, fmt.Errorf("%w and the words %q", err, text)
	}
}

// awaitAnswer polls, because dynoxide has no other sign of readiness, until it answers, ctx ends or the time is up.
//
// Its own word that it listens comes first: on a port lost to another dynoxide, that one would answer for ours.
func (s *Server) awaitAnswer(ctx context.Context, output *tail) bool {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if strings.Contains(output.String(), "listening on") && s.answers(ctx) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

func (s *Server) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint()+"/", nil)
	if err != nil {
		return false
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (s *Server) wasReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

func (s *Server) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
