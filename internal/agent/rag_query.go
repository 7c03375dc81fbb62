package agent

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"agentworker/internal/task"
)

// RAGQuery is the name of the task type that answers a question from documents.
const RAGQuery = "rag_query"

// MaxQuestionBytes bounds a question, in bytes of UTF-8, so that its message stays well below SQS's limit
// and its result fits a checkpoint.
const MaxQuestionBytes = 200_000

// passagesPerQuestion keeps an answer's citations short: its checkpoint stays below 1 KB, the unit in which DynamoDB counts writes.
const passagesPerQuestion = 3

// Question is the input of a [RAGQuery] task.
type Question struct {
	Question string `json:"question"`
}

// QuestionResult is the result of a [RAGQuery] task.
type QuestionResult struct {
	Question  string     `json:"question"`
	Answer    string     `json:"answer"`
	Citations []Citation `json:"citations"` // empty when the documents do not answer
	Model     string     `json:"model"`
}

type ragQuery struct {
	retriever  Retriever
	model      Model
	tokenLimit int64
}

func (q ragQuery) definition() task.Definition[Question, QuestionResult] {
	return task.Definition[Question, QuestionResult]{Name: RAGQuery, Check: checkQuestion, Run: q.run}
}

// run is one step. Finding passages has no effect and costs little: a checkpoint of its own would cost more, and would keep
// passages that a later attempt would find anew.
func (q ragQuery) run(ctx context.Context, run task.Run, in Question) (QuestionResult, error) {
	turns := Conversation(run.Turns())
	return task.LastStep(ctx, run, "generate", func(ctx context.Context, effects *task.Effects) (QuestionResult, error) {
		passages, err := q.retriever.Retrieve(ctx, SearchQuery(in.Question, turns), passagesPerQuestion)
		if err != nil {
			return QuestionResult{}, fmt.Errorf("retrieve passages: %w", err)
		}
		answer, err := q.model.Generate(ctx, Request{
			Question:  in.Question,
			Turns:     turns,
			Passages:  passages,
			EffectKey: effects.Key(),
		})
		if err != nil {
			return QuestionResult{}, fmt.Errorf("generate an answer: %w", err)
		}
		effects.UseTokens(answer.Usage.InputTokens, answer.Usage.OutputTokens)
		if used := effects.Tokens().Total(); q.tokenLimit > 0 && used > q.tokenLimit {
			return QuestionResult{}, task.Failf(task.CodeTokenLimit, "the task has used %d tokens, its limit is %d", used, q.tokenLimit)
		}
		return QuestionResult{
			Question:  in.Question,
			Answer:    answer.Text,
			Citations: answer.Citations,
			Model:     answer.Model,
		}, nil
	})
}

func checkQuestion(in Question) task.FieldErrors {
	switch {
	case in.Question == "":
		return task.FieldErrors{{Field: "question", Problem: "must not be empty"}}
	case len(in.Question) > MaxQuestionBytes:
		return task.FieldErrors{{Field: "question", Problem: fmt.Sprintf("must be at most %d bytes long, not %d", MaxQuestionBytes, len(in.Question))}}
	case strings.IndexFunc(in.Question, visible) < 0:
		return task.FieldErrors{{Field: "question", Problem: "must not be only white space"}}
	}
	return nil
}

func visible(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }
