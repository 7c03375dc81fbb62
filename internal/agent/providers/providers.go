// Package providers makes the model and the retriever that a worker's configuration names.
//
// A program has all of them. One that is built with the tag slim has only those whose tags are given too: bedrock, openai, ssm,
// s3, kb. What comes with the program or from a folder is always there.
package providers

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"agentworker/internal/agent"
	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/retrieval"
	"agentworker/internal/config"
)

// Providers are what the task types work with.
type Providers struct {
	Chat      chat.Model  // for conversations with tools
	Answers   agent.Model // the same model, for questions about passages
	Retriever agent.Retriever
}

// New chooses. It makes no request, but begins to read an S3 prefix in the background, until ctx ends; clients and keys wait
// for their first use.
func New(ctx context.Context, c config.Worker, keys config.Keys, aws aws.Config, log *slog.Logger) (Providers, error) {
	m, err := newModel(c, keys, aws)
	if err != nil {
		return Providers{}, err
	}
	r, err := newRetriever(ctx, c.Retriever, aws, log)
	if err != nil {
		return Providers{}, err
	}
	p := Providers{Chat: m, Answers: model.Answerer{Model: m}, Retriever: r}
	if offline, ok := m.(model.Offline); ok {
		p.Answers = offline
	}
	return p, nil
}

func newModel(c config.Worker, keys config.Keys, aws aws.Config) (chat.Model, error) {
	provider, name, _ := strings.Cut(c.Model, ":")
	switch provider {
	case "", "offline":
		return model.Offline{}, nil
	case "bedrock":
		return newBedrock(c, name, aws)
	case "openai":
		return newOpenAI(c, name, keys, aws)
	}
	return nil, fmt.Errorf("MODEL names no provider that is known: %q", provider)
}

func newRetriever(ctx context.Context, name string, aws aws.Config, log *slog.Logger) (agent.Retriever, error) {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "", "offline":
		// Indexing takes longer than the rest of the start, and many a worker never searches.
		return retrieval.Builtin(), nil
	case "folder":
		documents, err := retrieval.Folder(ctx, rest)
		if err != nil {
			return nil, err
		}
		documents.Begin(ctx, log)
		return documents, nil
	case "s3":
		return newS3(ctx, strings.TrimPrefix(rest, "//"), aws, log)
	case "kb":
		return newKnowledgeBase(rest, aws)
	}
	return nil, fmt.Errorf("RETRIEVER names nothing that is known: %q", kind)
}
