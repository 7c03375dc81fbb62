package lambda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// environment is an execution environment: a place for one process, with at most one invocation at a time. Whoever took it
// from the Function owns it; only live and current may be called by others.
type environment struct {
	function *Function

	mu      sync.Mutex
	process *process
}

// live tells whether there is a process that has not ended.
func (e *environment) live() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.process != nil && e.process.alive()
}

// current is the process that was started last, nil when there is none.
func (e *environment) current() *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.process
}

func (e *environment) setProcess(p *process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.process = p
}

// invoke is the life of one invocation.
func (e *environment) invoke(requestID, trace string, payload []byte) (Result, error) {
	log := &invocationLog{function: e.function, requestID: requestID}
	result := Result{RequestID: requestID}
	err := e.run(log, &result, trace, payload)
	if err != nil {
		return Result{RequestID: requestID}, err
	}
	result.LogTail = log.tail()
	return result, nil
}

func (e *environment) run(log *invocationLog, result *Result, trace string, payload []byte) error {
	config := e.function.config
	for {
		cold := !e.live()
		if cold {
			e.bury()
			if done, err := e.coldStart(log, result); done || err != nil {
				return err
			}
		}
		p := e.process
		log.begin(p)
		started := time.Now()
		if cold && result.Duration > 0 { // the second init ran on this invocation's time
			started = started.Add(-result.Duration)
		}
		inv := newInvocation(log.requestID, trace, payload, started.Add(config.Timeout))
		err := e.serve(p, inv, result)
		if errors.Is(err, errNotDelivered) {
			if !cold { // it died while idle, which is no fault of this invocation
				log.end(p)
				continue
			}
			err = nil
			result.Payload, result.FunctionError = exitPayload(log.requestID, p.exitText()), unhandled
		}
		if err != nil {
			log.end(p)
			e.setProcess(nil)
			return err
		}
		result.Duration = time.Since(started)
		result.MaxMemoryMiB = p.maxMemoryMiB()
		if inv.timedOut {
			log.platform(p, "%s", timeoutLine(time.Now(), log.requestID, config.Timeout))
		}
		log.report(p, config, result, inv.timedOut)
		if p.gone() { // one that is dying is seen off by the next invocation
			e.setProcess(nil)
		}
		return nil
	}
}

// bury sees a process that died while idle off, and what it left behind.
func (e *environment) bury() {
	p := e.process
	if p == nil {
		return
	}
	e.setProcess(nil)
	p.kill()
	e.function.emit(p, nil, Platform, fmt.Sprintf("process %d ended while idle and is replaced: %s", p.pid, p.exitText()))
}

// serve hands the invocation to the process and waits for its end: the process asking for the next event, its death, the
// timeout or the closing of the function. The answer counts from the moment that it was accepted, whatever happens then.
func (e *environment) serve(p *process, inv *invocation, result *Result) error {
	timeout := time.NewTimer(time.Until(inv.deadline))
	defer timeout.Stop()
	var aborted bool
	if err := p.deliver(inv, timeout.C, e.function.abort); err != nil {
		if !errors.Is(err, errTimeout) && !errors.Is(err, errAborted) {
			return err
		}
		inv.timedOut, aborted = errors.Is(err, errTimeout), errors.Is(err, errAborted)
		p.kill()
	} else {
		select {
		case <-inv.completed:
			p.flush()
		case <-p.exited:
		case <-timeout.C:
			inv.timedOut = true
			p.kill()
		case <-e.function.abort:
			aborted = true
			p.kill()
		}
	}
	answer, answered := inv.answer()
	switch {
	case answered:
		inv.timedOut = false
		result.Payload, result.FunctionError = answer.payload, answer.functionError
	case aborted:
		return ErrClosed
	case inv.timedOut:
		result.Payload, result.FunctionError = timeoutPayload(inv.id, e.function.config.Timeout), unhandled
	default:
		result.Payload, result.FunctionError = exitPayload(inv.id, p.exitText()), unhandled
	}
	return nil
}

// coldStart starts a process. When its init fails Lambda tries once more, on the time of the invocation; when that fails
// too, the invocation has ended with the error (done). Source: AWS Lambda Developer Guide, "Understanding the Lambda
// execution environment lifecycle".
func (e *environment) coldStart(log *invocationLog, result *Result) (done bool, err error) {
	config := e.function.config
	began := time.Now()
	p, err := e.start(log, config.InitTimeout, "init")
	if err == nil {
		e.setProcess(p)
		result.InitDuration = time.Since(began)
		return false, nil
	}
	if errors.Is(err, ErrClosed) {
		return true, err
	}
	log.begin(nil)
	began = time.Now()
	p, err = e.start(log, config.Timeout, "invoke")
	result.Duration = time.Since(began)
	if err == nil {
		e.setProcess(p)
		return false, nil
	}
	var failed *InitError
	if !errors.As(err, &failed) {
		return true, err
	}
	result.FunctionError = unhandled
	switch {
	case failed.Timeout:
		result.Payload = timeoutPayload(log.requestID, config.Timeout)
		log.platform(nil, "%s", timeoutLine(time.Now(), log.requestID, config.Timeout))
	case failed.payload != nil:
		result.Payload = failed.payload
	default:
		result.Payload = errorPayload(failed.Type, fmt.Sprintf("RequestId: %s Error: %s", log.requestID, failed.Message))
	}
	log.report(nil, config, result, failed.Timeout)
	return true, nil
}

// start starts a process and waits until it is ready, or reports why it never was.
func (e *environment) start(log *invocationLog, limit time.Duration, phase string) (*process, error) {
	began := time.Now()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	p, err := startProcess(e.function)
	if err == nil {
		err = p.awaitReady(timeout.C, nil, e.function.abort)
	}
	var failed *InitError
	if errors.As(err, &failed) {
		log.platform(p, "%s", initReport(time.Since(began), phase, failed))
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// warm starts a process outside an invocation.
func (e *environment) warm(ctx context.Context) error {
	e.bury()
	timeout := time.NewTimer(e.function.config.InitTimeout)
	defer timeout.Stop()
	began := time.Now()
	p, err := startProcess(e.function)
	if err != nil {
		return err
	}
	err = p.awaitReady(timeout.C, ctx.Done(), e.function.abort)
	var failed *InitError
	switch {
	case errors.As(err, &failed):
		e.function.emit(p, nil, Platform, initReport(time.Since(began), "init", failed))
		return err
	case errors.Is(err, errAborted):
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	e.setProcess(p)
	return nil
}

// stop ends an idle process.
func (e *environment) stop() {
	e.mu.Lock()
	p := e.process
	e.process = nil
	e.mu.Unlock()
	if p != nil {
		p.shutdown()
	}
}
