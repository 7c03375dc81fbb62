package mapping

import "sync"

// groupLocks keeps a message group in one batch at a time. SQS does so too while the messages are invisible; the lock is for
// the batch that outlives its visibility, for example because the function was throttled.
type groupLocks struct {
	mu     sync.Mutex
	queues map[string][]chan struct{} // of each group: who holds it, then who waits, in order
}

func newGroupLocks() *groupLocks {
	return &groupLocks{queues: map[string][]chan struct{}{}}
}

// lock waits until the batch is first in the queue of each of its groups. Batches queue up for all of their groups at once,
// so that they cannot wait for each other.
func (g *groupLocks) lock(batch []message) (unlock func()) {
	turn := map[string]chan struct{}{}
	g.mu.Lock()
	for _, msg := range batch {
		if turn[msg.group] != nil {
			continue
		}
		mine := make(chan struct{})
		turn[msg.group] = mine
		g.queues[msg.group] = append(g.queues[msg.group], mine)
		if len(g.queues[msg.group]) == 1 {
			close(mine)
		}
	}
	g.mu.Unlock()
	for _, mine := range turn {
		<-mine
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for group := range turn {
			waiting := g.queues[group][1:]
			if len(waiting) == 0 {
				delete(g.queues, group)
				continue
			}
			g.queues[group] = waiting
			close(waiting[0])
		}
	}
}
