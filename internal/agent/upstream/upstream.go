// Package upstream turns what goes wrong at a remote service, such as a model's, into what becomes of the task: another
// attempt, a later one, or none.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentworker/internal/task"
)

// Service is whom a call was made to.
type Service struct {
	Name   string // for the reader of an error: "the model"
	Prefix string // of its codes: "MODEL" gives MODEL_THROTTLED
}

// Kind is what went wrong.
type Kind struct {
	suffix    string // of the code
	says      string // continues the service's name
	permanent bool
}

// What can go wrong, with the codes that a service with the prefix MODEL gives for it.
var (
	Throttled   = Kind{"THROTTLED", "takes no more requests for the moment", false}     // MODEL_THROTTLED
	Unavailable = Kind{"UNAVAILABLE", "did not answer", false}                          // MODEL_UNAVAILABLE: 5xx, no connection, a cut one
	Timeout     = Kind{"TIMEOUT", "did not answer in time", false}                      // MODEL_TIMEOUT
	BadAnswer   = Kind{"BAD_ANSWER", "gave an answer that cannot be used", false}       // MODEL_BAD_ANSWER: malformed, or empty
	Invalid     = Kind{"REQUEST_INVALID", "does not accept the request", true}          // MODEL_REQUEST_INVALID
	TooLong     = Kind{"INPUT_TOO_LONG", "cannot read that much at once", true}         // MODEL_INPUT_TOO_LONG
	Refused     = Kind{"REFUSED", "refuses to answer this", true}                       // MODEL_REFUSED
	Cut         = Kind{"ANSWER_CUT", "reached the limit of its answer's length", true}  // MODEL_ANSWER_CUT: nothing usable before it
	Denied      = Kind{"ACCESS_DENIED", "does not let this worker in", true}            // MODEL_ACCESS_DENIED
	Quota       = Kind{"QUOTA_EXCEEDED", "has no quota left for this account", true}    // MODEL_QUOTA_EXCEEDED
	NotFound    = Kind{"NOT_FOUND", "is not there under the name that is set up", true} // MODEL_NOT_FOUND
)

// Code is the code of that kind of failure at this service.
func (s Service) Code(k Kind) string { return s.Prefix + "_" + k.suffix }

// Fail is the error of a failed call. The detail is the service's own words, "" for none: whoever passes it has taken
// secrets out.
func (s Service) Fail(k Kind, detail string) error {
	err := fmt.Errorf("%s %s", s.Name, k.says)
	if detail = strings.TrimSpace(detail); detail != "" {
		err = fmt.Errorf("%w: %s", err, detail)
	}
	err = task.WithCode(s.Code(k), err)
	if k.permanent {
		return task.Permanent(err)
	}
	return err
}

// Without a word from the service, throttling lasts until its minute is over, and a few retries should reach beyond
// that. The random part keeps tasks that were refused together from coming back together.
const (
	throttlePause  = 20 * time.Second
	throttleSpread = 10 * time.Second
)

// Throttle is [Service.Fail] for throttling, with the delay that the answer's headers name; without one it is between 20
// and 30 seconds.
func (s Service) Throttle(h http.Header, detail string) error {
	after, ok := Delay(h, time.Now())
	if !ok {
		after = throttlePause + rand.N(throttleSpread)
	}
	return task.RetryAfter(s.Fail(Throttled, detail), max(after, time.Second))
}

// Transport is the error of a call that got no answer at all, or none that could be read to its end. That the caller's own
// time is up is no fault of the service: ctx's error is given then, wrapped.
func (s Service) Transport(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("call %s: %w", s.Name, context.Cause(ctx))
	}
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return s.Fail(Timeout, "")
	}
	return s.Fail(Unavailable, "no usable connection"+reason(err))
}

// reason is why there is no connection, where whoever runs the worker can mend it. It holds no address.
func reason(err error) string {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return ": its host's name is not known"
	case errors.As(err, &certificate):
		return ": its certificate is not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return ": nothing listens at its address"
	}
	return ""
}

// Status is the kind of failure that an HTTP status of 300 or more stands for.
func Status(status int) Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return Denied
	case http.StatusPaymentRequired:
		return Quota
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return NotFound
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return Timeout
	case http.StatusRequestEntityTooLarge:
		return TooLong
	case http.StatusTooManyRequests:
		return Throttled
	case http.StatusConflict, http.StatusLocked, http.StatusFailedDependency, http.StatusTooEarly:
		return Unavailable
	}
	if status >= 400 && status < 500 {
		return Invalid
	}
	return Unavailable
}

// Delay is how long to wait by an answer's headers: retry-after-ms in milliseconds, Retry-After in seconds or as a date,
// or else the longest of the x-ratelimit-reset headers whose budget is used up. ok is false when they do not say.
// Source: RFC 9110, "Retry-After"; OpenAI API reference, "Rate limits in headers".
func Delay(h http.Header, now time.Time) (d time.Duration, ok bool) {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 {
		return seconds(ms / 1000), true
	}
	if after := h.Get("Retry-After"); after != "" {
		if s, err := strconv.ParseFloat(after, 64); err == nil && s >= 0 {
			return seconds(s), true
		}
		if at, err := http.ParseTime(after); err == nil {
			return max(at.Sub(now), 0), true
		}
	}
	for _, budget := range []string{"Requests", "Tokens"} {
		if h.Get("X-Ratelimit-Remaining-"+budget) != "0" {
			continue
		}
		if reset, err := time.ParseDuration(h.Get("X-Ratelimit-Reset-" + budget)); err == nil && reset >= 0 {
			d, ok = max(d, reset), true
		}
	}
	return d, ok
}

// seconds does not overflow, whatever a server says.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, (24*time.Hour).Seconds()) * float64(time.Second))
}
