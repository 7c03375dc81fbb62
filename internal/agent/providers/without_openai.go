//go:build slim && !openai

package providers

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent/chat"
	"agentworker/internal/config"
)

func newOpenAI(c config.Worker, name string, keys config.Keys, aws aws.Config) (chat.Model, error) {
	return nil, without("openai")
}
