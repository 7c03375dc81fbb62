package deployment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/smithy-go"
)

// UnreachableError says in a sentence for a person why the stack, or AWS, cannot be asked, and what to do about it.
type UnreachableError struct {
	Sentence string
	Cause    error // what the SDK or the network says; nil: nothing
}

func (e *UnreachableError) Error() string { return e.Sentence }

func (e *UnreachableError) Unwrap() error { return e.Cause }

func unreachable(cause error, format string, args ...any) error {
	return &UnreachableError{fmt.Sprintf(format, args...), cause}
}

const logIn = "log in again (aws sso login), or set AWS_PROFILE or the AWS_ACCESS_KEY_ID family"

// Explain makes a sentence of what stands between a caller and AWS, or the local chain: no connection, no or expired
// credentials, a missing permission. Any other error is returned as it is. Errors of all AWS clients can be given to
// it.
func (d *Deployment) Explain(err error) error {
	var known *UnreachableError
	if err == nil || errors.As(err, &known) {
		return err
	}
	var connection *net.OpError
	if errors.As(err, &connection) {
		if d.Local {
			return unreachable(err, "nothing answers at %s: start the local chain with: make run (AWS_PORT says where it is, if elsewhere)", host(err, aws.ToString(d.AWS.BaseEndpoint)))
		}
		return unreachable(err, "there is no connection to %s: %v", host(err, "AWS"), connection)
	}
	var refused smithy.APIError
	if !errors.As(err, &refused) {
		return err
	}
	switch code := refused.ErrorCode(); {
	case slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}, code):
		return unreachable(err, "the AWS credentials have expired: %s", logIn)
	case code == "RequestExpired", code == "RequestTimeTooSkewed":
		return unreachable(err, "AWS refuses the request as too old: set this machine's clock, or %s", logIn)
	case slices.Contains([]string{
		"InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSignatureException", "AuthFailure",
	}, code):
		return unreachable(err, "AWS does not accept the credentials (%s): %s", code, logIn)
	case strings.HasPrefix(code, "AccessDenied"), code == "UnauthorizedOperation", code == "AuthorizationError":
		return unreachable(err, "these AWS credentials may not do this: %s", refused.ErrorMessage())
	}
	return err
}

// host is what could not be reached, if the error tells.
func host(err error, unknown string) string {
	var u *url.Error
	if errors.As(err, &u) {
		if at, parseErr := url.Parse(u.URL); parseErr == nil && at.Host != "" {
			return at.Scheme + "://" + at.Host
		}
	}
	return unknown
}

func explainCredentials(err error) error {
	var token *ssocreds.InvalidTokenError
	if errors.As(err, &token) {
		return unreachable(err, "the login has expired: %s", logIn)
	}
	return unreachable(err, "there are no AWS credentials that can be used (%v): %s; for the chain on this machine say --local", err, logIn)
}

// explainStack is Explain for the call that looks for the stack.
func (d *Deployment) explainStack(err error) error {
	if explained := d.Explain(err); explained != err { //nolint:errorlint // the same one is one that it does not know
		return explained
	}
	var refused smithy.APIError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case !errors.As(err, &refused) && d.Local:
		return d.notLocal(err, "what it says is no answer of CloudFormation's")
	case !errors.As(err, &refused):
		return unreachable(err, "the stack %s cannot be looked up: %v", d.Name, err)
	case refused.ErrorCode() == "ValidationError" && strings.Contains(refused.ErrorMessage(), "does not exist"):
		return d.noStack(err)
	case d.Local:
		return d.notLocal(err, refused.ErrorCode())
	}
	return unreachable(err, "the stack %s cannot be looked up: %v", d.Name, err)
}

func (d *Deployment) notLocal(cause error, why string) error {
	return unreachable(cause, "what answers at %s is not the local chain (%s): set AWS_PORT to the port of the AWS APIs that make run has printed",
		aws.ToString(d.AWS.BaseEndpoint), why)
}

func (d *Deployment) noStack(cause error) error {
	if d.Local {
		return unreachable(cause, "what answers at %s has no stack %s: start the local chain with: make run", aws.ToString(d.AWS.BaseEndpoint), d.Name)
	}
	return unreachable(cause, "there is no stack %s in %s: name another stage with --stage or another region with --region, or deploy it; the chain on this machine is found with --local",
		d.Name, d.AWS.Region)
}
