//go:build !slim || ssm

package model

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// ParameterKey is a key in an SSM parameter, usually a SecureString, by its name or ARN.
func ParameterKey(c aws.Config, name string) *Key {
	return newKey(func(ctx context.Context) (string, error) {
		out, err := ssm.NewFromConfig(c).GetParameter(ctx, &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
		if err != nil {
			return "", err
		}
		return secretText(aws.ToString(out.Parameter.Value))
	}, "")
}
