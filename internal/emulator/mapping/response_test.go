package mapping_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

// What each answer of the function does to a batch of m1, m2 and m3: the first invocation gives it, later ones succeed.
//
// Case: malformed response
// Case: mapping not opted in
func TestResponseTable(t *testing.T) {
	t.Parallel()
	all, none := "m1×1 m2×1 m3×1", ""
	tests := []struct {
		name   string
		answer string
		fails  string // FunctionError
		off    bool   // ReportBatchItemFailures
		left   string // in the queue, right after
		want   mapping.Outcome
	}{
		{"empty list", `{"batchItemFailures":[]}`, "", false, none, mapping.OutcomeSucceeded},
		{"null list", `{"batchItemFailures":null}`, "", false, none, mapping.OutcomeSucceeded},
		{"empty object", `{}`, "", false, none, mapping.OutcomeSucceeded},
		{"null", `null`, "", false, none, mapping.OutcomeSucceeded},
		{"no body", ``, "", false, none, mapping.OutcomeSucceeded},
		{"invalid JSON", `{"batchItemFailures":[`, "", false, all, mapping.OutcomeInvalidResponse},
		{"trailing JSON", `{"batchItemFailures":[]} {}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"a string", `"done"`, "", false, all, mapping.OutcomeInvalidResponse},
		{"a list", `[]`, "", false, all, mapping.OutcomeInvalidResponse},
		{"list is a string", `{"batchItemFailures":"m1"}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"one failure", `{"batchItemFailures":[{"itemIdentifier":"m2"}]}`, "", false, "m2×1", mapping.OutcomePartial},
		{"all failures", `{"batchItemFailures":[{"itemIdentifier":"m2"},{"itemIdentifier":"m1"},{"itemIdentifier":"m3"}]}`, "", false, all, mapping.OutcomePartial},
		{"empty identifier", `{"batchItemFailures":[{"itemIdentifier":""}]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"null identifier", `{"batchItemFailures":[{"itemIdentifier":null}]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"number as identifier", `{"batchItemFailures":[{"itemIdentifier":1}]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"null item", `{"batchItemFailures":[null]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"wrong item key", `{"batchItemFailures":[{"id":"m2"}]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"item key in another case", `{"batchItemFailures":[{"ItemIdentifier":"m2"}]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"unknown id", `{"batchItemFailures":[{"itemIdentifier":"m2"},{"itemIdentifier":"m4"}]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"receipt handle as id", `{"batchItemFailures":[{"itemIdentifier":"m2/1"}]}`, "", false, all, mapping.OutcomeInvalidResponse},
		{"wrong top-level key", `{"failures":[{"itemIdentifier":"m2"}]}`, "", false, none, mapping.OutcomeSucceeded},
		{"top-level key in another case", `{"BatchItemFailures":[{"itemIdentifier":"m2"}]}`, "", false, none, mapping.OutcomeSucceeded},
		{"duplicates", `{"batchItemFailures":[{"itemIdentifier":"m2"},{"itemIdentifier":"m2"}]}`, "", false, "m2×1", mapping.OutcomePartial},
		{"exception", `{"errorMessage":"boom","errorType":"string"}`, "Unhandled", false, all, mapping.OutcomeFunctionError},
		{"timeout", `{"errorType":"Sandbox.Timedout","errorMessage":"RequestId: r Error: Task timed out after 10.00 seconds"}`, "Unhandled", false, all, mapping.OutcomeFunctionError},
		{"answer too large", `{"errorType":"Function.ResponseSizeTooLarge","errorMessage":"…"}`, "Unhandled", false, all, mapping.OutcomeFunctionError},
		{"feature off, list of failures", `{"batchItemFailures":[{"itemIdentifier":"m2"}]}`, "", true, none, mapping.OutcomeSucceeded},
		{"feature off, anything", `hello`, "", true, none, mapping.OutcomeSucceeded},
		{"feature off, exception", `{"errorMessage":"boom"}`, "Unhandled", true, all, mapping.OutcomeFunctionError},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(false, time.Minute)
				q.send(msg("m1"), msg("m2"), msg("m3"))
				first := true
				var again []string
				_, l, stop := run(t, q, function(func(_ context.Context, records []record) (lambda.Result, error) {
					if first {
						first = false
						return lambda.Result{Payload: []byte(test.answer), FunctionError: test.fails}, nil
					}
					again = append(again, names(records))
					return lambda.Result{}, nil
				}), func(c *mapping.Config) { c.ReportBatchItemFailures = !test.off })
				time.Sleep(time.Minute - time.Millisecond)
				synctest.Wait()
				if got := q.left(); got != test.left {
					t.Errorf("left in the queue: got %q, want %q", got, test.left)
				}
				if got := l.outcomes(); got != string(test.want) {
					t.Errorf("outcome: got %q, want %q", got, test.want)
				}
				// What was not deleted comes back when its visibility ends, and not earlier.
				time.Sleep(time.Second)
				synctest.Wait()
				if got := q.left(); got != "" {
					t.Errorf("left after the visibility timeout: got %q, want nothing", got)
				}
				want := 0
				if test.left != "" {
					want = 1
				}
				if len(again) != want {
					t.Errorf("second invocations: got %q, want %d", again, want)
				}
				stop()
			})
		})
	}
}
