package chaos

import (
	"time"
)

// lateWrite is a commit that is held up on its way.
type lateWrite struct {
	arrive chan struct{} // closed when it may arrive
	done   chan struct{} // closed when it has
}

// longestLate is how long a commit is held up if its task is never claimed again.
const longestLate = 15 * time.Second

// arriveLate holds the commit up until its task has been claimed again. Its sender has given up by then and gets no
// answer: this is the write of a worker that does not know that it is dead.
func (x *exchange) arriveLate() {
	l := &lateWrite{make(chan struct{}), make(chan struct{})}
	x.mu.Lock()
	taken := x.late[x.task] != nil
	if !taken {
		x.late[x.task] = l
	}
	x.mu.Unlock()
	if taken { // one at a time
		x.drop()
	}
	defer close(l.done)
	timer := time.NewTimer(longestLate)
	defer timer.Stop()
	select {
	case <-l.arrive:
	case <-timer.C:
		x.mu.Lock()
		delete(x.late, x.task)
		x.mu.Unlock()
	}
	x.forward()
	x.drop()
}

// letLateOneIn lets a commit of an earlier owner of the task arrive, if there is one, before the new owner hears of its
// claim.
func (i *Injector) letLateOneIn(task string) {
	i.mu.Lock()
	l := i.late[task]
	delete(i.late, task)
	i.mu.Unlock()
	if l != nil {
		close(l.arrive)
		<-l.done
	}
}
