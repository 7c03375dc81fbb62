//go:build slim && !kb

package providers

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent"
)

func newKnowledgeBase(id string, aws aws.Config) (agent.Retriever, error) {
	return nil, without("kb")
}
