//go:build slim && !bedrock

package providers

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent/chat"
	"agentworker/internal/config"
)

func newBedrock(c config.Worker, name string, aws aws.Config) (chat.Model, error) {
	return nil, without("bedrock")
}
