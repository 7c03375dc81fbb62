package task

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Codes that the chain itself gives as the reason of a failure. Task types add their own with
// [WithCode]. They are stable: clients may decide on them.
const (
	CodeMalformed       = "MALFORMED_MESSAGE"     // the body is not a JSON object
	CodeUnknownTask     = "UNKNOWN_TASK"          // no such task type
	CodeTopicNotAllowed = "SNS_TOPIC_NOT_ALLOWED" // an SNS notification of a topic that may not hand in tasks
	CodeInvalidField    = "INVALID_FIELD"         // a named field is wrong
	CodeFailed          = "TASK_FAILED"           // the handler returned an error without a code
	CodePanic           = "PANIC"                 // the handler panicked
	CodeDeadline        = "DEADLINE_EXCEEDED"     // the attempt did not finish before the function's deadline
	CodeInterrupted     = "INTERRUPTED"           // the worker died or was stopped in the middle of an attempt
	CodeContinued       = "CONTINUED"             // no failure: the attempt ended between two steps, and the next one goes on there
	CodeRunTooLong      = "RUN_TOO_LONG"          // the run takes more time than all deliveries of a message have together
	CodeTokenLimit      = "TOKEN_LIMIT"           // the task has used up its tokens
	CodeStateTooLarge   = "STATE_TOO_LARGE"       // a step's output exceeds what one checkpoint can hold
	CodeStepsChanged    = "STEPS_CHANGED"         // the handler's steps no longer match the finished ones
	CodeSubmitFailed    = "SUBMIT_FAILED"         // recorded, but never put on the queue
	CodeMessageLost     = "MESSAGE_LOST"          // unfinished, and no message is left that could bring it to a worker
	CodeDeadLettered    = "DEAD_LETTERED"         // in the dead-letter queue without ever reaching a worker
	CodeTicketConflict  = "TICKET_CONFLICT"       // the ticket kept changing under the update
	CodeIllegalChange   = "ILLEGAL_TRANSITION"    // the ticket cannot go from its status to the wanted one
)

// MaxReasonLength bounds, in bytes, the reason that is kept of a failure.
const MaxReasonLength = 500

// Permanent marks err as one that no retry can mend: the task fails now. Like [RetryAfter] and [WithCode], it gives nil
// for nil.
func Permanent(err error) error { return mark(outcome{err: err, permanent: true}) }

// MaxDelay is the longest that [RetryAfter] waits. SQS hides a message for 12 h at most and counts from its receipt: an hour
// is left for what has passed since then.
// Source: Amazon SQS Developer Guide, "Amazon SQS visibility timeout".
const MaxDelay = 11 * time.Hour

// RetryAfter marks err as one that is worth another attempt once d has passed, because the
// dependency said so. d is cut to [MaxDelay].
func RetryAfter(err error, d time.Duration) error {
	return mark(outcome{err: err, after: min(max(d, 0), MaxDelay), hasAfter: true})
}

// WithCode gives err a stable code for the task's status, the history and the alarm.
func WithCode(code string, err error) error { return mark(outcome{err: err, code: code}) }

// Failf is a permanent failure with a code.
func Failf(code, format string, args ...any) error {
	return Permanent(WithCode(code, fmt.Errorf(format, args...)))
}

// Continue is the error of a handler that wants to go on at the next delivery, with the steps that are not committed
// yet. The delivery comes at once and does not count as a failed try; but SQS counts it, and at the last one that
// it allows the task fails with [CodeRunTooLong]. The longest run is therefore the worker's timeout times the
// queue's maxReceiveCount. [Step] gives this error by itself when too little time is left to begin another step, so that a
// handler of many steps need not look at the clock.
func Continue() error { return &outcome{err: errContinue, code: CodeContinued, goesOn: true} }

var errContinue = errors.New("the run goes on at the next delivery")

// IsContinue reports whether err is or wraps one that [Continue] made.
func IsContinue(err error) bool {
	return find(err, func(o *outcome) bool { return o.goesOn }) != nil
}

func mark(o outcome) error {
	if o.err == nil {
		return nil
	}
	return &o
}

type outcome struct {
	err       error
	code      string
	permanent bool
	goesOn    bool
	hasAfter  bool
	after     time.Duration
}

func (o *outcome) Error() string { return o.err.Error() }
func (o *outcome) Unwrap() error { return o.err }

// IsPermanent reports whether err, or one it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	return find(err, func(o *outcome) bool { return o.permanent }) != nil
}

// Delay is the time that [RetryAfter] gave; ok is false when none was given.
func Delay(err error) (d time.Duration, ok bool) {
	if o := find(err, func(o *outcome) bool { return o.hasAfter }); o != nil {
		return o.after, true
	}
	return 0, false
}

// Failure is why an attempt or a task failed, as clients and operators see it.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// FailureOf is the code and the reason that err, which is not nil, carries. The reason is valid UTF-8 and at most
// [MaxReasonLength] bytes long.
func FailureOf(err error) Failure {
	code := CodeFailed
	if o := find(err, func(o *outcome) bool { return o.code != "" }); o != nil {
		code = o.code
	}
	return Failure{Code: code, Message: clip(strings.ToValidUTF8(err.Error(), "\uFFFD"), MaxReasonLength)}
}

// find looks for the outermost mark that satisfies want: several may be wrapped around one error. Of joined errors
// the first that has one counts.
func find(err error, want func(*outcome) bool) *outcome {
	switch e := err.(type) { //nolint:errorlint // errors.As stops at the first mark, which may not be the wanted one
	case *outcome:
		if want(e) {
			return e
		}
		return find(e.err, want)
	case interface{ Unwrap() error }:
		return find(e.Unwrap(), want)
	case interface{ Unwrap() []error }:
		for _, joined := range e.Unwrap() {
			if o := find(joined, want); o != nil {
				return o
			}
		}
	}
	return nil
}

// clip cuts s at a character boundary.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + ellipsis
}
