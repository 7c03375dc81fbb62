//go:build !slim || s3

package providers

import (
	"context"
	"log/slog"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent"
	"agentworker/internal/agent/retrieval"
)

func newS3(ctx context.Context, location string, aws aws.Config, log *slog.Logger) (agent.Retriever, error) {
	bucket, prefix, _ := strings.Cut(location, "/")
	documents := retrieval.S3(aws, bucket, prefix)
	documents.Begin(ctx, log)
	return documents, nil
}
