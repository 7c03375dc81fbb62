package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// kinds are the AWS error codes that say more than their HTTP status.
// Source: Amazon Bedrock API Reference, "Converse" and "Common errors".
var kinds = map[string]Kind{
	"ThrottlingException":           Throttled,
	"TooManyRequestsException":      Throttled,
	"ServiceQuotaExceededException": Throttled, // the quotas of models are per minute and per day
	"ModelNotReadyException":        Throttled, // an imported model that is being loaded
	"ModelTimeoutException":         Timeout,
	"ModelErrorException":           Unavailable,
	"ModelStreamErrorException":     Unavailable,
	"InternalServerException":       Unavailable,
	"ServiceUnavailableException":   Unavailable,
	"DependencyFailedException":     Unavailable,
	"BadGatewayException":           Unavailable,
	"ConflictException":             Unavailable,
	"RequestTimeoutException":       Timeout,
	"ValidationException":           Invalid,
	"AccessDeniedException":         Denied,
	"UnrecognizedClientException":   Denied,
	"InvalidSignatureException":     Denied,
	"IncompleteSignature":           Denied,
	"MissingAuthenticationToken":    Denied,
	"NotAuthorized":                 Denied,
	"OptInRequired":                 Denied,
	"AccessDenied":                  Denied,
	"InvalidAccessKeyId":            Denied,
	"ResourceNotFoundException":     NotFound,
	"NoSuchBucket":                  NotFound,
	"PermanentRedirect":             NotFound, // the bucket lies in another region
	"ParameterNotFound":             NotFound,
	"ExpiredTokenException":         Unavailable, // the role's next credentials are valid again
	"ExpiredToken":                  Unavailable,
	"RequestExpired":                Unavailable,
	"SlowDown":                      Throttled,
}

// tooLong is how models say, in an error that is otherwise one of validation, that a request exceeds what they can read.
var tooLong = []string{"too long", "too many input tokens", "context window", "context length", "context limit", "context size", "maximum context", "maximum number of tokens", "exceeds the model"}

// IsTooLong reports whether a service's own words say that a request holds more than a model can read.
func IsTooLong(message string) bool {
	message = strings.ToLower(message)
	for _, phrase := range tooLong {
		if strings.Contains(message, phrase) {
			return true
		}
	}
	return false
}

// AWS is the error of a call through the AWS SDK, which has not been retried.
func (s Service) AWS(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return s.Transport(ctx, err)
	}
	var api smithy.APIError
	var answer *awshttp.ResponseError
	var malformed *smithy.DeserializationError
	errors.As(err, &answer)
	switch {
	case errors.As(err, &api):
		return s.api(api, answer)
	case answer != nil && answer.HTTPStatusCode() >= 300:
		return s.HTTP(Status(answer.HTTPStatusCode()), answer.Response.Header, "")
	case errors.Is(err, context.DeadlineExceeded):
		return s.Transport(ctx, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return s.Transport(ctx, err) // the answer broke off
	case errors.As(err, &malformed):
		return s.Fail(BadAnswer, "it is not what the API promises")
	}
	var invalid smithy.InvalidParamsError
	var unwritable *smithy.SerializationError
	if errors.As(err, &invalid) || errors.As(err, &unwritable) {
		return s.Fail(Invalid, "it cannot be put into the API's form")
	}
	return s.Transport(ctx, err)
}

func (s Service) api(api smithy.APIError, answer *awshttp.ResponseError) error {
	var header http.Header
	kind := Unavailable // no answer: it is about credentials, which could not be got
	if answer != nil && answer.Response != nil {
		header = answer.Response.Header
		kind = Status(answer.HTTPStatusCode())
	}
	if k, ok := kinds[api.ErrorCode()]; ok {
		kind = k
	}
	switch {
	case kind == Invalid && IsTooLong(api.ErrorMessage()):
		kind = TooLong
	case kind == Invalid && strings.Contains(api.ErrorMessage(), "auto-paused"):
		// Aurora Serverless beneath a knowledge base: "is resuming after being auto-paused. Please wait a few seconds and try again".
		kind = Throttled
	}
	detail := strings.TrimSuffix(api.ErrorCode()+": "+api.ErrorMessage(), ": ")
	return s.HTTP(kind, header, detail)
}
