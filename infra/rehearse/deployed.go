package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// deployed is the stack as its clients see it.
type deployed struct {
	outputs
	api   string // host of the HTTP API
	http  *http.Client
	aws   aws.Credentials
	sqs   *sqs.Client
	table *dynamodb.Client
	fn    *lambda.Client
}

func newDeployed(awsURL string, out outputs) (*deployed, error) {
	endpoint, err := url.Parse(awsURL)
	if err != nil {
		return nil, err
	}
	api, err := url.Parse(out["ApiUrl"])
	if err != nil || api.Host == "" {
		return nil, fmt.Errorf("ApiUrl is %q", out["ApiUrl"])
	}
	provider := credentials.NewStaticCredentialsProvider(accessKey, secretKey, "")
	// Deviation: the API's host is below 127.0.0.1, which no resolver knows; MiniStack tells APIs apart by the Host header.
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, endpoint.Host)
	}}
	return &deployed{
		outputs: out, api: api.Host,
		http:  &http.Client{Transport: transport, Timeout: 40 * time.Second},
		aws:   aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey},
		sqs:   sqs.New(sqs.Options{Region: region, Credentials: provider, BaseEndpoint: &awsURL}),
		table: dynamodb.New(dynamodb.Options{Region: region, Credentials: provider, BaseEndpoint: &awsURL}),
		fn:    lambda.New(lambda.Options{Region: region, Credentials: provider, BaseEndpoint: &awsURL}),
	}, nil
}

// call asks the HTTP API with a signed request, and decodes the answer.
func (d *deployed) call(ctx context.Context, method, path string, body, answer any) error {
	status, text, err := d.request(ctx, method, path, body, true)
	if err != nil {
		return err
	}
	if status/100 != 2 {
		return fmt.Errorf("%s %s: %d %s", method, path, status, text)
	}
	return json.Unmarshal(text, answer)
}

func (d *deployed) request(ctx context.Context, method, path string, body any, sign bool) (status int, answer []byte, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+d.api+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if sign {
		hash := sha256.Sum256(text)
		if err := v4.NewSigner().SignHTTP(ctx, d.aws, r, hex.EncodeToString(hash[:]), "execute-api", region, time.Now()); err != nil {
			return 0, nil, err
		}
	}
	response, err := d.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}
