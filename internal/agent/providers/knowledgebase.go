//go:build !slim || kb

package providers

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent"
	"agentworker/internal/agent/retrieval"
)

func newKnowledgeBase(id string, aws aws.Config) (agent.Retriever, error) {
	return retrieval.NewKnowledgeBase(aws, id), nil
}
