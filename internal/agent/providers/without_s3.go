//go:build slim && !s3

package providers

import (
	"context"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent"
)

func newS3(ctx context.Context, location string, aws aws.Config, log *slog.Logger) (agent.Retriever, error) {
	return nil, without("s3")
}
