package awsclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
)

// Load is the SDK's configuration from what Lambda puts into a function's environment: AWS_REGION; the credentials, as keys or
// as AWS_CONTAINER_CREDENTIALS_FULL_URI with its token. Of the SDK's settings it knows AWS_ENDPOINT_URL with the services'
// own, AWS_MAX_ATTEMPTS, AWS_RETRY_MODE, AWS_CA_BUNDLE, AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT and
// AWS_SDK_UA_APP_ID. Profiles, single sign-on and instance roles are not looked for: that takes longer than the rest of a
// function's start. Its error names every variable that is missing or malformed, and no value.
//
// Sources: AWS Lambda Developer Guide, "Defined runtime environment variables"; AWS SDKs and Tools Reference Guide,
// "Environment variables list".
func Load() (aws.Config, error) {
	c := aws.Config{
		Region:        first("AWS_REGION", "AWS_DEFAULT_REGION"),
		AppID:         os.Getenv("AWS_SDK_UA_APP_ID"),
		ConfigSources: []any{environment{}},
		// The SDK's own defaults, which it sets nowhere else.
		AccountIDEndpointMode:      aws.AccountIDEndpointModePreferred,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}
	if ignored, _, _ := (environment{}).GetIgnoreConfiguredEndpoints(context.Background()); !ignored {
		if endpoint := os.Getenv("AWS_ENDPOINT_URL"); endpoint != "" {
			c.BaseEndpoint = &endpoint
		}
	}
	var region, keys, retries, client error
	if c.Region == "" {
		region = errors.New("AWS_REGION is not set")
	}
	c.Credentials, keys = loadCredentials()
	c.RetryMaxAttempts, c.RetryMode, retries = loadRetries()
	c.HTTPClient, client = loadHTTPClient()
	if err := errors.Join(region, keys, retries, client, switches()); err != nil {
		return aws.Config{}, fmt.Errorf("the environment is not usable for AWS:\n%w", err)
	}
	return c, nil
}

func first(names ...string) string {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	return ""
}

func loadCredentials() (aws.CredentialsProvider, error) {
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	endpoint := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	switch {
	case id != "" && secret != "":
		return credentials.StaticCredentialsProvider{Value: aws.Credentials{
			AccessKeyID: id, SecretAccessKey: secret, SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
			AccountID: os.Getenv("AWS_ACCOUNT_ID"), Source: "environment",
		}}, nil
	case endpoint == "":
		return nil, errors.New("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, nor is AWS_CONTAINER_CREDENTIALS_FULL_URI")
	case !keepsSecrets(endpoint):
		return nil, errors.New("AWS_CONTAINER_CREDENTIALS_FULL_URI is not an https URL, nor one of this machine or a container's host")
	}
	provider := endpointcreds.New(endpoint, func(o *endpointcreds.Options) {
		o.HTTPClient = HTTPClient(answerTimeout)
		o.AuthorizationToken = os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
		if file := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
			// Read anew each time: the token changes.
			o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(func() (string, error) {
				token, err := os.ReadFile(file) //nolint:gosec // whoever runs the function names the file
				return string(token), err
			})
		}
	})
	return aws.NewCredentialsCache(provider, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = renewBefore }), nil
}

// renewBefore their end credentials are asked for anew, as the SDK does it.
const renewBefore = 5 * time.Minute

// containerHosts are where Amazon ECS and EKS give credentials to containers.
// Source: AWS SDKs and Tools Reference Guide, "Container credential provider".
var containerHosts = []string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}

// keepsSecrets reports whether credentials may be asked for at this address: not over an open network.
func keepsSecrets(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	near := err == nil && (ip.IsLoopback() || slices.Contains(containerHosts, ip.String()))
	return u.Scheme == "https" || u.Scheme == "http" && near
}

func loadRetries() (attempts int, mode aws.RetryMode, err error) {
	if value := os.Getenv("AWS_MAX_ATTEMPTS"); value != "" {
		var malformed error
		if attempts, malformed = strconv.Atoi(value); malformed != nil || attempts < 1 {
			err = errors.New("AWS_MAX_ATTEMPTS is not a whole number of 1 or more")
		}
	}
	if value := os.Getenv("AWS_RETRY_MODE"); value != "" {
		var unknown error
		if mode, unknown = aws.ParseRetryMode(value); unknown != nil {
			err = errors.Join(err, errors.New("AWS_RETRY_MODE is not standard or adaptive"))
		}
	}
	return attempts, mode, err
}

// loadHTTPClient takes the certificates of AWS_CA_BUNDLE, where there is one, for the only ones to trust.
func loadHTTPClient() (aws.HTTPClient, error) {
	client := Buildable(answerTimeout)
	if file := os.Getenv("AWS_CA_BUNDLE"); file != "" {
		pem, err := os.ReadFile(file) //nolint:gosec // whoever runs the function names the file
		if err != nil {
			return nil, errors.New("AWS_CA_BUNDLE is not a file that can be read")
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(pem) {
			return nil, errors.New("AWS_CA_BUNDLE holds no certificate")
		}
		client = client.WithTransportOptions(func(t *http.Transport) {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted}
		})
	}
	return Plain(client), nil
}

// environment answers what the services' clients look for when they are made. The SDK knows its methods by their names.
type environment struct{}

// GetIgnoreConfiguredEndpoints tells whether the endpoints of the environment do not count.
func (environment) GetIgnoreConfiguredEndpoints(context.Context) (value, found bool, err error) {
	return is("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
}

// GetServiceBaseEndpoint gives the endpoint of one service, such as "Bedrock Runtime".
func (environment) GetServiceBaseEndpoint(_ context.Context, service string) (endpoint string, found bool, err error) {
	endpoint = os.Getenv("AWS_ENDPOINT_URL_" + strings.ReplaceAll(strings.ToUpper(service), " ", "_"))
	return endpoint, endpoint != "", nil
}

// GetUseFIPSEndpoint tells whether requests go to endpoints with certified cryptography.
func (environment) GetUseFIPSEndpoint(context.Context) (state aws.FIPSEndpointState, found bool, err error) {
	on, found, err := is("AWS_USE_FIPS_ENDPOINT")
	if on {
		return aws.FIPSEndpointStateEnabled, found, err
	}
	return aws.FIPSEndpointStateDisabled, found, err
}

// GetUseDualStackEndpoint tells whether requests go to endpoints that know IPv6 as well.
func (environment) GetUseDualStackEndpoint(context.Context) (state aws.DualStackEndpointState, found bool, err error) {
	on, found, err := is("AWS_USE_DUALSTACK_ENDPOINT")
	if on {
		return aws.DualStackEndpointStateEnabled, found, err
	}
	return aws.DualStackEndpointStateDisabled, found, err
}

// switches says which of them are neither on nor off: clients are made without a word of it.
func switches() error {
	var problems []error
	for _, name := range []string{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"} {
		_, _, err := is(name)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// is reads a variable that is true or false.
func is(name string) (value, found bool, err error) {
	text := os.Getenv(name)
	switch {
	case text == "":
		return false, false, nil
	case strings.EqualFold(text, "true"):
		return true, true, nil
	case strings.EqualFold(text, "false"):
		return false, true, nil
	}
	return false, false, fmt.Errorf("%s is not true or false", name)
}
