package batch

import (
	"context"
	"fmt"
	"sync"
)

// work is what is left to do and what is known of each record; once taken, nothing changes it any more.
//
// A group waits in turn with its next record, and is with a worker otherwise. A worker that finds nothing there can go for
// good: all groups that are not through are with other workers, who go on with them.
type work struct {
	mu      sync.Mutex
	workers int
	turn    []int // next records of the waiting groups
	next    []int // the record behind each one in its group, -1: none
	states  []state
	taken   bool
}

type state struct {
	done bool
	err  error
}

func newWork[T any](records []Record[T]) *work {
	w := &work{turn: make([]int, 0, len(records)), next: make([]int, len(records)), states: make([]state, len(records))}
	var last map[string]int // of each group
	for i, r := range records {
		w.next[i] = -1
		if r.Group != "" {
			if at, known := last[r.Group]; known {
				w.next[at], last[r.Group] = i, i
				continue
			}
			if last == nil {
				last = map[string]int{}
			}
			last[r.Group] = i
		}
		w.turn = append(w.turn, i)
	}
	return w
}

// begin hands out a record, unless the time is up or there is none left for this worker.
func (w *work) begin(ctx context.Context) (at int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.turn) == 0 || ctx.Err() != nil {
		return 0, false
	}
	at, w.turn = w.turn[0], w.turn[1:]
	return at, true
}

func (w *work) leave(all chan<- struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.workers--; w.workers == 0 {
		close(all)
	}
}

func (w *work) take() []state {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken = true
	return w.states
}

// finish notes how a record ended. Its group's turn comes again behind the others, or never when the record has failed.
func (w *work) finish(at int, err error, id func(int) string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.taken {
		return
	}
	w.states[at] = state{done: true, err: err}
	next := w.next[at]
	switch {
	case next < 0:
	case err == nil:
		w.turn = append(w.turn, next)
	default:
		behind := fmt.Errorf("%w: %s", ErrBehind, id(at))
		for ; next >= 0; next = w.next[next] {
			w.states[next] = state{done: true, err: behind}
		}
	}
}
