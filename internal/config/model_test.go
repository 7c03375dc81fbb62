package config_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/config"
)

func TestModelAndRetriever(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set  map[string]string
		want string // "": accepted
	}{
		"nothing":                {nil, ""},
		"offline":                {map[string]string{"MODEL": "offline", "RETRIEVER": "offline"}, ""},
		"bedrock":                {map[string]string{"MODEL": "bedrock:arn:aws:bedrock:eu-west-1:123456789012:inference-profile/x", "RETRIEVER": "kb:ABCDEFGHIJ"}, ""},
		"openai":                 {map[string]string{"MODEL": "openai:llama3:8b", "OPENAI_BASE_URL": "http://127.0.0.1:11434/v1", "MODEL_TIMEOUT": "2m", "MAX_TOKENS_PER_TASK": "1"}, ""},
		"folder":                 {map[string]string{"RETRIEVER": "folder:docs"}, ""},
		"S3":                     {map[string]string{"RETRIEVER": "s3://bucket/prefix"}, ""},
		"model without provider": {map[string]string{"MODEL": "gpt-MARKER"}, `MODEL must be "offline", "bedrock:" and a model's id, or "openai:" and a model's name`},
		"model without name":     {map[string]string{"MODEL": "bedrock: "}, "MODEL must be"},
		"retriever unknown":      {map[string]string{"RETRIEVER": "/docs/MARKER"}, `RETRIEVER must be "offline", "folder:"`},
		"retriever without name": {map[string]string{"RETRIEVER": "kb:"}, "RETRIEVER must be"},
		"time too short":         {map[string]string{"MODEL_TIMEOUT": "1ms"}, "MODEL_TIMEOUT is 1ms; set 1s to 15m"},
		"time too long":          {map[string]string{"MODEL_TIMEOUT": "16m"}, "MODEL_TIMEOUT is 16m0s; set 1s to 15m"},
		"no time":                {map[string]string{"MODEL_TIMEOUT": "soon"}, "MODEL_TIMEOUT is not a duration"},
		"tokens":                 {map[string]string{"MAX_TOKENS_PER_TASK": "-1"}, "MAX_TOKENS_PER_TASK is -1"},
		"URL":                    {map[string]string{"OPENAI_BASE_URL": "localhost:11434"}, "OPENAI_BASE_URL is not the URL of a server"},
		"URL with password":      {map[string]string{"OPENAI_BASE_URL": "https://me:MARKER@example.com/v1"}, "OPENAI_BASE_URL is not the URL of a server"},
		"two places for one key": {map[string]string{"OPENAI_API_KEY_SECRET": "a", "OPENAI_API_KEY_PARAMETER": "b"}, "OPENAI_API_KEY_SECRET and OPENAI_API_KEY_PARAMETER are both set"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vars := config.Variables(worker)
			for k, v := range tt.set {
				vars[k] = v
			}
			_, err := config.LoadFrom[config.Worker](environ(vars))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), "\n  "+tt.want) || strings.Contains(err.Error(), "MARKER")):
				t.Errorf("got %v, want %q and no value", err, tt.want)
			}
		})
	}
}

func TestModelVariablesAreWhatLoadReads(t *testing.T) {
	t.Parallel()
	want := worker
	want.Model, want.ModelTimeout, want.MaxTokensPerTask, want.Retriever = "openai:m", 90*time.Second, 1000, "s3://b/p"
	want.OpenAIBaseURL, want.OpenAIKeySecret = "https://example.com/v1", "arn:aws:secretsmanager:eu-west-1:123456789012:secret:k"
	vars := config.Variables(want)
	got, err := config.LoadFrom[config.Worker](environ(vars))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, read back (-want +got):\n%s", err, diff)
	}
	if _, ok := vars["OPENAI_API_KEY"]; ok {
		t.Error("a template would hold the key")
	}
	if v, ok := config.Variables(worker)["MODEL"]; ok {
		t.Errorf("what is not set is written as %q", v)
	}
}

func TestSecretShowsNothing(t *testing.T) {
	t.Parallel()
	keys, err := config.LoadFrom[config.Keys]([]string{"OPENAI_API_KEY=MARKER"})
	if err != nil || string(keys.OpenAI) != "MARKER" {
		t.Fatalf("got %q, %v", string(keys.OpenAI), err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", keys.OpenAI, "keys", keys)
	raw, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{log.String(), string(raw), fmt.Sprintf("%v %+v %#v %s %q", keys, keys, keys, keys.OpenAI, keys.OpenAI)} {
		if strings.Contains(s, "MARKER") {
			t.Errorf("the key is in %s", s)
		}
	}
}

func TestPartsThatAreNeeded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		c    config.Worker
		want string
	}{
		{config.Worker{}, "[]"},
		{config.Worker{Model: "offline", Retriever: "folder:bedrock:", OpenAIKeyParameter: "p"}, "[]"},
		{config.Worker{Model: "bedrock:m", Retriever: "kb:ABCDEFGHIJ"}, "[bedrock kb]"},
		{config.Worker{Model: "openai:m", Retriever: "s3://b", OpenAIKeySecret: "s"}, "[openai s3]"},
		{config.Worker{Model: "openai:m", OpenAIKeyParameter: "p"}, "[openai ssm]"},
	} {
		if got := fmt.Sprint(tt.c.Parts()); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.c, got, tt.want)
		}
	}
}
