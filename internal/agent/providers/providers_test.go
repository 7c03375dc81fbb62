package providers_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"agentworker/internal/agent"
	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/agent/providers"
	"agentworker/internal/config"
	"agentworker/internal/task"
	"agentworker/internal/task/tasktest"
)

const secretKey = "sk-MARKER-51c0"

var discard = slog.New(slog.DiscardHandler)

func awsAt(url string) aws.Config {
	return aws.Config{Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("AKIA", "secret", ""), BaseEndpoint: &url}
}

func TestChoice(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.md"), []byte("# A\n\nB."), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		c                        config.Worker
		chat, answers, retriever string
	}{
		"nothing set":    {config.Worker{}, "model.Offline", "model.Offline", "*retrieval.Loaded"},
		"offline":        {config.Worker{Model: "offline", Retriever: "offline"}, "model.Offline", "model.Offline", "*retrieval.Loaded"},
		"bedrock":        {config.Worker{Model: "bedrock:eu.anthropic.claude-v1:0", Retriever: "kb:ABCDEFGHIJ"}, "*model.Bedrock", "model.Answerer", "*retrieval.KnowledgeBase"},
		"openai, folder": {config.Worker{Model: "openai:llama3:8b", Retriever: "folder:" + folder}, "*model.OpenAI", "model.Answerer", "*retrieval.Loaded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := providers.New(t.Context(), tt.c, config.Keys{}, awsAt("http://127.0.0.1:1"), discard)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{fmt.Sprintf("%T", p.Chat), fmt.Sprintf("%T", p.Answers), fmt.Sprintf("%T", p.Retriever)}
			if want := []string{tt.chat, tt.answers, tt.retriever}; !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	for _, c := range []config.Worker{{Model: "gpt"}, {Retriever: "ftp://x"}, {Retriever: "folder:" + folder + "/missing"}} {
		if _, err := providers.New(t.Context(), c, config.Keys{}, awsAt("http://127.0.0.1:1"), discard); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

// The same question with openai: and bedrock: is asked alike, gives the same result, and costs the same tokens.
func TestSameTaskWithEitherProvider(t *testing.T) {
	t.Parallel()
	results := map[string]string{}
	for _, provider := range []string{"openai", "bedrock"} {
		s := modeltest.Start(t)
		s.Converse(modeltest.Say("LangGraph 是一个框架 [1]。\"<&>\" 🙂 مرحبا").Using(120, 30))
		got, run, err := ask(t, s, provider, "什么是 LangGraph？", config.Worker{})
		if err != nil {
			t.Fatalf("%s: %v", provider, err)
		}
		results[provider] = strings.ReplaceAll(got, provider+":m", "MODEL")
		if run.Tokens() != (task.Tokens{Input: 120, Output: 30}) {
			t.Errorf("%s: tokens: got %+v, want 120 and 30", provider, run.Tokens())
		}
		calls := s.Calls()
		if len(calls) != 1 || calls[0].EffectKey != string(run.ID())+"/generate" || calls[0].Protocol != provider {
			t.Errorf("%s: got calls %+v, want one under the step's effect key", provider, calls)
		}
		if !strings.Contains(got, `🙂 مرحبا`) || !strings.Contains(got, `"document":"langgraph.zh","passage":1`) {
			t.Errorf("%s: got %s, want the text as it was said and a citation", provider, got)
		}
	}
	if diff := cmp.Diff(results["openai"], results["bedrock"]); diff != "" {
		t.Errorf("results differ (-openai +bedrock):\n%s", diff)
	}
}

func TestQuestionBeyondTheTokenLimit(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	s.Converse(modeltest.Say("Long [1].").Using(900, 101))
	_, _, err := ask(t, s, "openai", "什么是 LangGraph？", config.Worker{MaxTokensPerTask: 1000})
	if failure := task.FailureOf(err); failure.Code != task.CodeTokenLimit || !task.IsPermanent(err) || !strings.Contains(failure.Message, "1001") {
		t.Errorf("got %v, want a permanent %s that says how many", err, task.CodeTokenLimit)
	}
	if _, _, err := ask(t, s, "openai", "什么是 LangGraph？", config.Worker{MaxTokensPerTask: 1001}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func TestQuestionThatTheDocumentsDoNotAnswerCostsNothing(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	got, run, err := ask(t, s, "bedrock", "What is the capital of France?", config.Worker{})
	if err != nil || !strings.Contains(got, "The documents do not answer this question.") || run.Tokens() != (task.Tokens{}) || len(s.Calls()) != 0 {
		t.Errorf("got %s, %v, %+v tokens, %d calls, want an honest answer and no call", got, err, run.Tokens(), len(s.Calls()))
	}
}

// ask runs a question with the provider at s.
func ask(t *testing.T, s *modeltest.Server, provider, question string, c config.Worker) (string, *tasktest.Run, error) {
	t.Helper()
	c.Model, c.OpenAIBaseURL = provider+":m", s.OpenAIURL()
	var logged bytes.Buffer
	p, err := providers.New(t.Context(), c, config.Keys{OpenAI: secretKey}, awsAt(s.BedrockURL()), slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	types, err := task.NewRegistry(agent.Types(agent.Config{Retriever: p.Retriever, Model: p.Answers, Chat: p.Chat, TokenLimit: int64(c.MaxTokensPerTask)})...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := types.Decode([]byte(fmt.Sprintf(`{"task":"rag_query","thread_id":"th-1","question":%q}`, question)), "message-1", time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	typ, _ := types.Lookup(m.Task)
	run := tasktest.NewRun(m.ID)
	out, err := typ.Run(t.Context(), run, m)
	if strings.Contains(logged.String()+fmt.Sprint(err)+string(out)+fmt.Sprintf("%+v", p), "MARKER") {
		t.Errorf("the key shows up in a log, an error or a result")
	}
	return string(out), run, err
}
