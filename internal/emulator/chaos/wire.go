package chaos

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Wire is the AWS endpoint with faults between it and the functions. What others send passes untouched.
func (i *Injector) Wire(next http.Handler) http.Handler {
	if i == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, ours := look(r)
		if !ours || i.stopped.Load() {
			next.ServeHTTP(w, r)
			return
		}
		x := &exchange{Injector: i, request: q, next: next, r: r}
		x.before(w)
	})
}

// exchange is one request of a function and its answer.
type exchange struct {
	*Injector
	request
	next http.Handler
	r    *http.Request
}

// before is what can go wrong before the request arrives.
func (x *exchange) before(w http.ResponseWriter) {
	submit := strings.HasPrefix(x.process, "submit-")
	switch {
	case x.claim && x.strikes(KillBeforeClaim), x.commit && x.strikes(KillBeforeWrite):
		x.drop()
	case submit && x.operation == "SendMessage" && x.strikesSubmit():
	case x.strikes(Cut):
		x.report(Cut, x.hit())
		x.drop()
	case x.table && x.strikes(Throttle):
		x.report(Throttle, x.hit())
		refuse(w, http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "injected: slow down")
	case x.table && x.write && x.strikes(Conflict):
		x.report(Conflict, x.hit())
		if x.operation == "TransactWriteItems" {
			refuseTransaction(w)
			return
		}
		refuse(w, http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#TransactionConflictException", "injected: transaction is ongoing for the item")
	case !x.table && x.strikes(SQS):
		x.report(SQS, x.hit())
		refuse(w, http.StatusInternalServerError, "com.amazonaws.sqs#InternalError", "injected: try again")
	case x.operation == "ChangeMessageVisibilityBatch" && x.strikes(Partial):
		x.report(Partial, x.hit())
		x.refuseEntries(w)
	case x.commit && x.strikes(Late):
		x.report(Late, x.hit())
		x.arriveLate()
	default:
		x.after(w)
	}
}

// after is what can go wrong once the request has taken effect.
func (x *exchange) after(w http.ResponseWriter) {
	answer := x.forward()
	if x.claim && answer.status == http.StatusOK {
		x.letLateOneIn(x.task)
		if x.watch.Claimed != nil {
			x.watch.Claimed(x.task, x.process)
		}
	}
	switch {
	case x.claim && x.strikes(KillAfterClaim), x.commit && x.strikes(KillAfterWrite):
		x.drop()
	case x.write && x.strikes(Lost):
		x.report(Lost, x.hit())
		x.drop()
	}
	if dice, slow := x.draw(Slow, x.key); slow {
		x.report(Slow, x.hit())
		x.wait(time.Duration(dice.Int64N(int64(500 * time.Millisecond))))
	}
	if x.table && strings.HasPrefix(x.process, "worker-") {
		x.soon(Kill, syscall.SIGKILL, 50*time.Millisecond)
		x.soon(Freeze, syscall.SIGSTOP, 50*time.Millisecond)
		if x.claim {
			x.soon(KillMidStep, syscall.SIGKILL, 20*time.Millisecond)
		}
	}
	answer.send(w)
}

// strikes draws a fault for this request. One that kills does so at once.
func (x *exchange) strikes(kind Kind) bool {
	_, strikes := x.draw(kind, x.key)
	if strikes && strings.HasPrefix(string(kind), "kill") {
		x.signal(syscall.SIGKILL, kind, x.hit())
	}
	return strikes
}

// strikesSubmit kills an API process between its two writes: half of the time before, half after the message is sent.
func (x *exchange) strikesSubmit() bool {
	dice, strikes := x.draw(KillSubmit, x.key)
	if !strikes {
		return false
	}
	if dice.IntN(2) == 0 {
		x.forward()
	}
	x.signal(syscall.SIGKILL, KillSubmit, x.hit())
	x.drop()
	return true
}

// soon draws a fault that hits the process within the given time.
func (x *exchange) soon(kind Kind, signal syscall.Signal, within time.Duration) {
	if dice, strikes := x.draw(kind, x.key); strikes {
		x.signalLater(time.Duration(dice.Int64N(int64(within))), signal, kind, x.hit())
	}
}

func (x *exchange) hit() Injection {
	return Injection{Process: x.process, Task: x.task, Thread: x.thread, What: x.operation}
}

// drop ends the connection without an answer.
func (x *exchange) drop() { panic(http.ErrAbortHandler) }

func (x *exchange) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.r.Context().Done():
	}
}

// forward lets the request take effect, whether or not its sender is still there.
func (x *exchange) forward() *answer {
	a := &answer{header: http.Header{}, status: http.StatusOK}
	x.next.ServeHTTP(a, x.r.WithContext(context.WithoutCancel(x.r.Context())))
	return a
}

// answer is what a service said, not sent yet.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (a *answer) send(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client is gone
}
