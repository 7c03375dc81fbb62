//go:build !slim || openai

package providers

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model"
	"agentworker/internal/config"
)

func newOpenAI(c config.Worker, name string, keys config.Keys, aws aws.Config) (chat.Model, error) {
	// On a laptop the key comes from the environment. Servers such as Ollama want none.
	key := model.FixedKey(string(keys.OpenAI))
	switch {
	case c.OpenAIKeySecret != "":
		key = model.SecretKey(aws, c.OpenAIKeySecret)
	case c.OpenAIKeyParameter != "":
		var err error
		if key, err = newParameterKey(c.OpenAIKeyParameter, aws); err != nil {
			return nil, err
		}
	}
	return model.NewOpenAI(model.OpenAIConfig{Model: name, BaseURL: c.OpenAIBaseURL, Key: key, Timeout: c.ModelTimeout}), nil
}
