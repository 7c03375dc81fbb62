package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentworker/internal/config"
)

var worker = config.Worker{
	Table: "table", QueueURL: "https://sqs.eu-west-1.amazonaws.com/123456789012/tasks",
	OrderedQueueURL: "http://127.0.0.1:4566/000000000000/tasks.fifo",
	Retries:         3, MaxReceiveCount: 5, PartialBatch: true, RecordRetention: 90 * 24 * time.Hour, MetricsNamespace: "agentworker",
	AllowedTopics: []string{"arn:aws:sns:eu-west-1:123456789012:a", "arn:aws:sns:eu-west-1:123456789012:b"},
}

func environ(vars map[string]string) []string {
	var pairs []string
	for k, v := range vars {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return pairs
}

func TestVariablesAreWhatLoadReads(t *testing.T) {
	t.Parallel()
	got, err := config.LoadFrom[config.Worker](environ(config.Variables(worker)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(worker, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

func TestNoTopicIsAllowedUnlessNamed(t *testing.T) {
	t.Parallel()
	vars := config.Variables(worker)
	for name, change := range map[string]func(){
		"empty": func() { vars["ALLOWED_TOPICS"] = "" },
		"unset": func() { delete(vars, "ALLOWED_TOPICS") },
	} {
		change()
		got, err := config.LoadFrom[config.Worker](environ(vars))
		if err != nil || len(got.AllowedTopics) != 0 {
			t.Errorf("%s: got %q (%v), want no topics and no error", name, got.AllowedTopics, err)
		}
	}
}

// An ARN of something else allows nothing, and would do so silently.
func TestTopicsAreTopics(t *testing.T) {
	t.Parallel()
	vars := config.Variables(worker)
	for _, arn := range []string{"arn:aws:sqs:eu-west-1:123456789012:jobs", "jobs", "arn:aws:sns:eu-west-1:123456789012:jobs:1"} {
		vars["ALLOWED_TOPICS"] = arn
		if _, err := config.LoadFrom[config.Worker](environ(vars)); err == nil || !strings.Contains(err.Error(), "ALLOWED_TOPICS is not a list of topic ARNs") {
			t.Errorf("%s: got %v, want it refused", arn, err)
		}
	}
}

func TestEveryProblemIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	vars := config.Variables(worker)
	delete(vars, "TABLE_NAME")
	vars["QUEUE_URL"] = "tasks-secret"
	vars["ORDERED_QUEUE_URL"] = ""
	vars["RETRIES"] = "three"
	vars["MAX_RECEIVE_COUNT"] = "0"
	vars["REPORT_BATCH_ITEM_FAILURES"] = "si"
	vars["RECORD_RETENTION"] = "1h"
	vars["ALLOWED_TOPICS"] = "arn:aws:sns:eu-west-1:123456789012:*"
	_, err := config.LoadFrom[config.Worker](environ(vars))
	if err == nil {
		t.Fatal("no error for a hopeless environment")
	}
	for _, want := range []string{
		"TABLE_NAME is not set",
		"QUEUE_URL is not a queue URL",
		"ORDERED_QUEUE_URL is empty",
		"RETRIES is not a whole number",
		"MAX_RECEIVE_COUNT is 0; set 1 to 1000",
		"REPORT_BATCH_ITEM_FAILURES is not true or false",
		"RECORD_RETENTION is 1h0m0s; set at least 24h",
		"ALLOWED_TOPICS is not a list of topic ARNs with commas between them",
	} {
		if n := strings.Count(err.Error(), "\n  "+want); n != 1 {
			t.Errorf("%q stands %d times, want once, in:\n%v", want, n, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the message quotes a value: %v", err)
	}
}
