// Package awsprofile finds AWS the way that the AWS CLI does: by profiles, single sign-on and whatever else the SDK knows. It is
// for programs that people start; a Lambda function has all it needs in its environment, see
// [agentworker/internal/awsclient.Load], and starts faster without this.
package awsprofile

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"agentworker/internal/awsclient"
)

// Load is the SDK's default configuration. answerTimeout is how long its calls wait for an answer to begin; 0: without end.
func Load(ctx context.Context, answerTimeout time.Duration, options ...func(*config.LoadOptions) error) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx, append(options, config.WithHTTPClient(awsclient.Buildable(answerTimeout)))...)
	if err != nil {
		return cfg, err
	}
	// Only now: the SDK itself adds the certificates of AWS_CA_BUNDLE to the client, and must know it.
	cfg.HTTPClient = awsclient.Plain(cfg.HTTPClient)
	return cfg, nil
}
