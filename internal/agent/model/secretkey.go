//go:build !slim || openai

package model

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

// SecretKey is a key in AWS Secrets Manager, by the secret's ARN or name: its text, or the member OPENAI_API_KEY, api_key
// or key of its JSON object.
func SecretKey(c aws.Config, id string) *Key {
	return newKey(func(ctx context.Context) (string, error) {
		client := secretsmanager.NewFromConfig(c)
		out, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &id})
		if err != nil {
			return "", err
		}
		return secretText(aws.ToString(out.SecretString))
	}, "")
}
