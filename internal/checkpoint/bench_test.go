package checkpoint_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
)

// accepting takes every transaction.
type accepting struct{ checkpoint.API }

func (accepting) TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return &dynamodb.TransactWriteItemsOutput{}, nil
}

// BenchmarkCommit builds the transaction of a last step, without sending it.
func BenchmarkCommit(b *testing.B) {
	store := checkpoint.New(accepting{}, "table", checkpoint.Options{})
	now := time.Now()
	commit := checkpoint.Commit{
		Record: checkpoint.Record{
			TaskID: task.NewID("th-1", now), Task: "rag_query", Status: checkpoint.Running, MessageID: "m",
			Attempts: []checkpoint.Attempt{{StartedAt: now, MessageID: "m"}}, Lease: checkpoint.Lease{Owner: "o", Until: now.Add(time.Minute), Fence: 1},
		},
		Newest: 1000, Step: "generate", Last: true,
		Data: jsontext.Value(`{"question":"What is a dead-letter queue?","answer":"` + strings.Repeat("It takes what failed. ", 14) + `"}`),
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := store.Commit(b.Context(), commit); err != nil {
			b.Fatal(err)
		}
	}
}
