package mapping

import (
	"context"
	"sync"
)

// limiter bounds the batches that are being gathered or processed. A failure halves the bound, a success raises it by one
// until it is what was configured.
type limiter struct {
	mu      sync.Mutex
	maximum int
	bound   int
	used    int
	changed chan struct{} // closed and replaced when a place may have become free
}

func newLimiter(maximum int) *limiter {
	return &limiter{maximum: maximum, bound: maximum, changed: make(chan struct{})}
}

// acquire takes a place and tells whether it could before ctx ended.
func (l *limiter) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		l.mu.Lock()
		if l.used < l.bound {
			l.used++
			l.mu.Unlock()
			return true
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

func (l *limiter) release() {
	l.update(func() { l.used-- })
}

func (l *limiter) lower() {
	l.update(func() { l.bound = max(1, l.bound/2) })
}

func (l *limiter) raise() {
	l.update(func() { l.bound = min(l.maximum, l.bound+1) })
}

func (l *limiter) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}
