package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Keys are what must not come from a template. They are read apart from the rest, so that [Variables] never writes them.
type Keys struct {
	OpenAI Secret `env:"OPENAI_API_KEY"`
}

// Validate implements what [Load] wants.
func (Keys) Validate() error { return nil }

// Secret shows nothing of itself when it is printed, logged or encoded.
type Secret string

// String hides the secret.
func (Secret) String() string { return "[secret]" }

// GoString hides the secret.
func (Secret) GoString() string { return "[secret]" }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// Parts names, by their build tags, the parts of the worker that the model and the retriever take. See
// [agentworker/internal/agent/providers].
func (c Worker) Parts() []string {
	var parts []string
	for _, part := range []struct {
		tag    string
		needed bool
	}{
		{"bedrock", strings.HasPrefix(c.Model, "bedrock:")},
		{"openai", strings.HasPrefix(c.Model, "openai:")},
		{"ssm", strings.HasPrefix(c.Model, "openai:") && c.OpenAIKeyParameter != ""},
		{"s3", strings.HasPrefix(c.Retriever, "s3:")},
		{"kb", strings.HasPrefix(c.Retriever, "kb:")},
	} {
		if part.needed {
			parts = append(parts, part.tag)
		}
	}
	return parts
}

func (c Worker) validateModel() error {
	return errors.Join(
		oneOf("MODEL", c.Model, []string{"offline"}, []string{"bedrock:", "openai:"}, `"offline", "bedrock:" and a model's id, or "openai:" and a model's name`),
		oneOf("RETRIEVER", c.Retriever, []string{"offline"}, []string{"folder:", "s3://", "kb:"}, `"offline", "folder:" and a path, "s3://" and a bucket, or "kb:" and a knowledge base's id`),
		timeLimit("MODEL_TIMEOUT", c.ModelTimeout),
		between("MAX_TOKENS_PER_TASK", c.MaxTokensPerTask, 0, 100_000_000),
		webURL("OPENAI_BASE_URL", c.OpenAIBaseURL),
		c.oneKey())
}

// oneOf takes "", one of the words, or one of the prefixes with something behind it.
func oneOf(name, value string, words, prefixes []string, allowed string) error {
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(value, p); ok && strings.TrimSpace(rest) != "" {
			return nil
		}
	}
	return fmt.Errorf("%s must be %s", name, allowed)
}

func timeLimit(name string, d time.Duration) error {
	if d != 0 && (d < time.Second || d > 15*time.Minute) {
		return fmt.Errorf("%s is %v; set 1s to 15m", name, d)
	}
	return nil
}

func webURL(name, value string) error {
	u, err := url.Parse(value)
	if value != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil) {
		return fmt.Errorf("%s is not the URL of a server, without user and password", name)
	}
	return nil
}

func (c Worker) oneKey() error {
	if c.OpenAIKeySecret != "" && c.OpenAIKeyParameter != "" {
		return errors.New("OPENAI_API_KEY_SECRET and OPENAI_API_KEY_PARAMETER are both set; set one")
	}
	return nil
}
