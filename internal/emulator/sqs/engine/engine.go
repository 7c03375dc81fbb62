// Package engine is Amazon SQS without the network: queues, messages and time.
//
// Everything happens under one lock and at times that the clock gives, so that the same calls at the
// same times have the same outcome. Nothing runs in the background except the writer of the store:
// what time alone changes (a delay or a visibility timeout that ends, a message that expires, a move
// task that goes on) is made up for at the next call, and a waiting receive wakes when it is due.
package engine

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
)

// InFlightLimit is how many messages of a queue may be in flight at once.
// Source: Amazon SQS Developer Guide, "Amazon SQS message quotas".
const InFlightLimit = 120_000

// Options configures an Engine. The zero value is a working engine in memory and in real time.
type Options struct {
	// Clock is where all times come from; nil means real time.
	Clock clockwork.Clock
	// Dir is the folder that holds the state; it is made when missing. Empty keeps everything in memory.
	Dir string
	// Region and AccountID are part of every ARN; empty means us-east-1 and 000000000000.
	Region, AccountID string
	// InFlightLimit replaces the constant of that name; 0 keeps it.
	InFlightLimit int
}

// Engine holds the queues of one account in one region. It is safe for concurrent use.
type Engine struct {
	clock  clockwork.Clock
	region string
	owner  string
	limit  int
	store  *store // nil in memory
	closed chan struct{}

	mu      sync.Mutex
	ended   bool
	last    uint64 // last id given to a queue or a message
	queues  map[string]*queue
	deleted map[string]time.Time // names that cannot be used again yet
	tasks   []*task
}

// Open makes an engine and, with Options.Dir, reads the state that an earlier one left there, however
// that one ended. A folder that another process uses is an error.
func Open(opts Options) (*Engine, error) {
	e := &Engine{
		clock: opts.Clock, region: opts.Region, owner: opts.AccountID, limit: opts.InFlightLimit,
		closed: make(chan struct{}), queues: map[string]*queue{}, deleted: map[string]time.Time{},
	}
	if e.clock == nil {
		e.clock = clockwork.NewRealClock()
	}
	if e.region == "" {
		e.region = "us-east-1"
	}
	if e.owner == "" {
		e.owner = "000000000000"
	}
	if e.limit == 0 {
		e.limit = InFlightLimit
	}
	if opts.Dir == "" {
		return e, nil
	}
	st, err := openStore(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open queue store in %s: %w", opts.Dir, err)
	}
	if err := e.load(st); err != nil {
		_ = st.close()
		return nil, fmt.Errorf("read queue store in %s: %w", opts.Dir, err)
	}
	e.store = st
	return e, nil
}

// Close ends waiting receives, which return empty, and closes the store. Calls that come later fail
// with ErrClosed. Closing twice is fine.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return nil
	}
	e.ended = true
	close(e.closed)
	e.mu.Unlock()
	if e.store == nil {
		return nil
	}
	if err := e.store.close(); err != nil {
		return fmt.Errorf("close queue store: %w", err)
	}
	return nil
}

// do runs one operation under the lock and returns when all that it saw and changed is stored.
func (e *Engine) do(op func(now time.Time) error) error {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return ErrClosed
	}
	now := e.clock.Now()
	e.settle(now)
	err := op(now)
	written := e.store.commit()
	e.mu.Unlock()
	if werr := written.wait(); werr != nil {
		return fmt.Errorf("store the operation: %w", werr)
	}
	return err
}

// on is do for one queue, brought up to date first.
func (e *Engine) on(name string, op func(q *queue, now time.Time) error) error {
	return e.do(func(now time.Time) error {
		q, err := e.find(name)
		if err != nil {
			return err
		}
		e.advance(q, now)
		return op(q, now)
	})
}

func (e *Engine) find(name string) (*queue, error) {
	if q := e.queues[name]; q != nil {
		return q, nil
	}
	return nil, refuse(QueueDoesNotExist, "The specified queue does not exist.")
}

// byArn returns the queue of this account and region with that ARN, nil when there is none.
func (e *Engine) byArn(arn string) *queue {
	if q := e.queues[arn[strings.LastIndexByte(arn, ':')+1:]]; q != nil && q.arn == arn {
		return q
	}
	return nil
}

func (e *Engine) arn(name string) string {
	return "arn:aws:sqs:" + e.region + ":" + e.owner + ":" + name
}

// next gives out ids: never the same twice, not even after a restart.
func (e *Engine) next() uint64 {
	e.last++
	return e.last
}

// advance brings the queue to now: expired messages go, delays and visibility timeouts end.
//
// Expiry comes first, so that an expired message can never be received nor dead-lettered.
func (e *Engine) advance(q *queue, now time.Time) {
	for {
		m, ok := q.retained.top()
		if !ok || now.Before(m.retainedFrom.Add(q.cfg.retention)) {
			break
		}
		e.remove(q, m)
	}
	for {
		m, ok := q.timers.top()
		if !ok || now.Before(m.visibleAt) {
			break
		}
		q.become(m, ready)
	}
	e.forgetDuplicates(q, now)
}

func (e *Engine) remove(q *queue, m *message) {
	q.drop(m)
	e.store.deleteMessage(q, m)
}
