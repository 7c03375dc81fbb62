//go:build slim && !ssm

package providers

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent/model"
)

func newParameterKey(name string, aws aws.Config) (*model.Key, error) {
	return nil, without("ssm")
}
