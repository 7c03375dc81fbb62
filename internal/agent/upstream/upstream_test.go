package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"agentworker/internal/agent/upstream"
	"agentworker/internal/task"
)

var service = upstream.Service{Name: "the model", Prefix: "MODEL"}

func TestDelay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		header map[string]string
		want   time.Duration
		ok     bool
	}{
		"nothing":                {nil, 0, false},
		"seconds":                {map[string]string{"Retry-After": "7"}, 7 * time.Second, true},
		"part of a second":       {map[string]string{"Retry-After": "0.5"}, 500 * time.Millisecond, true},
		"a date":                 {map[string]string{"Retry-After": "Sun, 29 Nov 2026 12:01:30 GMT"}, 90 * time.Second, true},
		"a date gone by":         {map[string]string{"Retry-After": "Sun, 29 Nov 2026 11:00:00 GMT"}, 0, true},
		"milliseconds win":       {map[string]string{"Retry-After-Ms": "1500", "Retry-After": "9"}, 1500 * time.Millisecond, true},
		"negative":               {map[string]string{"Retry-After": "-1"}, 0, false},
		"nonsense":               {map[string]string{"Retry-After": "soon"}, 0, false},
		"no number":              {map[string]string{"Retry-After": "NaN"}, 0, false},
		"endless":                {map[string]string{"Retry-After": "1e300"}, 24 * time.Hour, true},
		"requests used up":       {map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m2s"}, 62 * time.Second, true},
		"the longer one":         {map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1s", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "6s"}, 6 * time.Second, true},
		"budget not used up":     {map[string]string{"X-Ratelimit-Remaining-Requests": "3", "X-Ratelimit-Reset-Requests": "1m"}, 0, false},
		"no duration":            {map[string]string{"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "x"}, 0, false},
		"Retry-After over reset": {map[string]string{"Retry-After": "2", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m"}, 2 * time.Second, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for k, v := range tt.header {
				h.Set(k, v)
			}
			if got, ok := upstream.Delay(h, now); got != tt.want || ok != tt.ok {
				t.Errorf("got %v, %t, want %v, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestStatusDecidesWhatBecomesOfTheTask(t *testing.T) {
	t.Parallel()
	tests := map[int]struct {
		code      string
		permanent bool
	}{
		302: {"MODEL_UNAVAILABLE", false}, 400: {"MODEL_REQUEST_INVALID", true}, 401: {"MODEL_ACCESS_DENIED", true},
		402: {"MODEL_QUOTA_EXCEEDED", true}, 403: {"MODEL_ACCESS_DENIED", true}, 404: {"MODEL_NOT_FOUND", true},
		408: {"MODEL_TIMEOUT", false}, 409: {"MODEL_UNAVAILABLE", false}, 413: {"MODEL_INPUT_TOO_LONG", true},
		422: {"MODEL_REQUEST_INVALID", true}, 429: {"MODEL_THROTTLED", false}, 500: {"MODEL_UNAVAILABLE", false},
		502: {"MODEL_UNAVAILABLE", false}, 503: {"MODEL_UNAVAILABLE", false}, 504: {"MODEL_TIMEOUT", false}, 529: {"MODEL_UNAVAILABLE", false},
	}
	for status, tt := range tests {
		err := service.HTTP(upstream.Status(status), nil, "words")
		if got := task.FailureOf(err); got.Code != tt.code || task.IsPermanent(err) != tt.permanent || !strings.HasSuffix(got.Message, ": words") {
			t.Errorf("status %d: got %+v, permanent %t, want %s, permanent %t", status, got, task.IsPermanent(err), tt.code, tt.permanent)
		}
	}
}

func TestThrottlingSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	for range 50 {
		if d, ok := task.Delay(service.Throttle(nil, "")); !ok || d < 20*time.Second || d >= 30*time.Second {
			t.Fatalf("without a header: got %v, %t, want 20 s to 30 s", d, ok)
		}
	}
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "0": time.Second, "1e9": task.MaxDelay} {
		err := service.Throttle(http.Header{"Retry-After": {header}}, "")
		if d, ok := task.Delay(err); !ok || d != want || task.IsPermanent(err) {
			t.Errorf("Retry-After %s: got %v, %t, permanent %t, want %v", header, d, ok, task.IsPermanent(err), want)
		}
	}
}

func TestDelayOfAnUnavailableService(t *testing.T) {
	t.Parallel()
	err := service.HTTP(upstream.Unavailable, http.Header{"Retry-After": {"9"}}, "")
	if d, ok := task.Delay(err); !ok || d != 9*time.Second || task.FailureOf(err).Code != "MODEL_UNAVAILABLE" {
		t.Errorf("got %v, %t, %v, want 9 s", d, ok, err)
	}
	if d, ok := task.Delay(service.HTTP(upstream.Invalid, http.Header{"Retry-After": {"9"}}, "")); ok {
		t.Errorf("an invalid request comes back after %v, want never", d)
	}
}

func TestTheCallersOwnTimeIsNoFaultOfTheService(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{service.Transport(ended, errors.New("x")), service.AWS(ended, errors.New("x"))} {
		if !errors.Is(err, context.Canceled) || task.FailureOf(err).Code != task.CodeFailed {
			t.Errorf("got %v with code %s, want the context's error without a code of the service", err, task.FailureOf(err).Code)
		}
	}
	if err := service.Transport(t.Context(), context.DeadlineExceeded); task.FailureOf(err).Code != "MODEL_TIMEOUT" || task.IsPermanent(err) {
		t.Errorf("got %v, want MODEL_TIMEOUT", err)
	}
}

// Whoever set the address up is told what is wrong with it, without the address.
func TestNoConnectionSaysWhy(t *testing.T) {
	t.Parallel()
	for want, cause := range map[string]error{
		"its host's name is not known":   &net.DNSError{Err: "no such host", Name: "host-MARKER", IsNotFound: true},
		"nothing listens at its address": os.NewSyscallError("connect", syscall.ECONNREFUSED),
		"no usable connection":           errors.New("MARKER"),
	} {
		err := service.Transport(t.Context(), &net.OpError{Op: "dial", Err: cause})
		if task.FailureOf(err).Code != "MODEL_UNAVAILABLE" || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "MARKER") {
			t.Errorf("got %v, want MODEL_UNAVAILABLE that ends in %q, and no address", err, want)
		}
	}
}

func TestErrorsThatSayMoreThanTheirKind(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err       error
		code      string
		permanent bool
	}{
		"context limit": {answered(400, "ValidationException", "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000"), "MODEL_INPUT_TOO_LONG", true},
		"another":       {answered(400, "ValidationException", "no such field"), "MODEL_REQUEST_INVALID", true},
		// What a knowledge base says whose Aurora Serverless sleeps.
		"a database that sleeps": {answered(400, "ValidationException", "The Aurora DB instance x is resuming after being auto-paused. Please wait a few seconds and try again"), "MODEL_THROTTLED", false},
		"another region":         {answered(301, "PermanentRedirect", "must be addressed using the specified endpoint"), "MODEL_NOT_FOUND", true},
		// What the SDK gives when the endpoint of the credentials fails: no answer of the service at all.
		"no credentials": {fmt.Errorf("get credentials: %w", &smithy.GenericAPIError{Code: "InternalServerError", Message: "later"}), "MODEL_UNAVAILABLE", false},
	} {
		err := service.AWS(t.Context(), tt.err)
		if got := task.FailureOf(err); got.Code != tt.code || task.IsPermanent(err) != tt.permanent {
			t.Errorf("%s: got %+v, permanent %t, want %s, permanent %t", name, got, task.IsPermanent(err), tt.code, tt.permanent)
		}
	}
}

// answered is an error as the SDK gives it.
func answered(status int, code, message string) error {
	return &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status, Header: http.Header{}}},
		Err:      &smithy.GenericAPIError{Code: code, Message: message},
	}}
}
