package lambda

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// invocationLog gathers the log of one invocation and hands each line on.
type invocationLog struct {
	function  *Function
	requestID string

	mu      sync.Mutex
	started bool
	last    []byte
}

// emit hands one line to the function's Output and to the log of the invocation.
func (f *Function) emit(p *process, log *invocationLog, stream Stream, text string) {
	line := Line{Time: time.Now(), Stream: stream, Function: f.config.Name, Text: text}
	if p != nil {
		line.ProcessID, line.Process = p.pid, p.id
	}
	if log != nil {
		line.RequestID = log.requestID
		log.keep(text)
	}
	if f.config.Output == nil {
		return
	}
	f.output.Lock()
	defer f.output.Unlock()
	f.config.Output(line)
}

func (l *invocationLog) keep(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(append(l.last, text...), '\n')
	if excess := len(l.last) - maxLogTail; excess > 0 {
		l.last = append(l.last[:0], l.last[excess:]...)
	}
}

func (l *invocationLog) tail() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last) // a late line may still be written
}

func (l *invocationLog) platform(p *process, format string, args ...any) {
	l.function.emit(p, l, Platform, fmt.Sprintf(format, args...))
}

// begin writes START, once, and has the lines of the process counted to this invocation.
func (l *invocationLog) begin(p *process) {
	if !l.started {
		l.started = true
		l.platform(p, "START RequestId: %s Version: $LATEST", l.requestID)
	}
	if p != nil {
		p.log.Store(l)
	}
}

func (l *invocationLog) end(p *process) {
	if p != nil {
		p.log.Store(nil)
	}
}

// report writes END and REPORT. Source: AWS Lambda Developer Guide, "Sending Lambda function logs to CloudWatch Logs".
func (l *invocationLog) report(p *process, config Config, result *Result, timedOut bool) {
	l.end(p)
	l.platform(p, "END RequestId: %s", l.requestID)
	text := fmt.Sprintf("REPORT RequestId: %s\tDuration: %s ms\tBilled Duration: %d ms\tMemory Size: %d MB\tMax Memory Used: %d MB",
		l.requestID, milliseconds(result.Duration), int(math.Ceil(float64(result.Duration+result.InitDuration)/float64(time.Millisecond))),
		config.MemoryMiB, result.MaxMemoryMiB)
	if result.InitDuration > 0 {
		text += fmt.Sprintf("\tInit Duration: %s ms", milliseconds(result.InitDuration))
	}
	switch {
	case timedOut:
		text += "\tStatus: timeout"
	case result.FunctionError != "":
		text += "\tStatus: error"
	}
	l.platform(p, "%s", text)
}

func initReport(took time.Duration, phase string, failed *InitError) string {
	text := fmt.Sprintf("INIT_REPORT Init Duration: %s ms\tPhase: %s\tStatus: ", milliseconds(took), phase)
	if failed.Timeout {
		return text + "timeout"
	}
	return text + "error\tError Type: " + failed.Type
}

func timeoutLine(now time.Time, requestID string, timeout time.Duration) string {
	return fmt.Sprintf("%s %s Task timed out after %.2f seconds", now.UTC().Format("2006-01-02T15:04:05.000Z"), requestID, timeout.Seconds())
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond))
}
