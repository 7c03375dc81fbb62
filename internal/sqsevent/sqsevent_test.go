package sqsevent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentworker/internal/sqsevent"
)

// Both events were captured: one of a standard and one of a FIFO queue.
func TestDecodeReadsWhatLambdaSends(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../../functions/worker/testdata/sqs.json", "../emulator/mapping/testdata/event.json"} {
		payload, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var full events.SQSEvent
		if err := json.Unmarshal(payload, &full); err != nil {
			t.Fatal(err)
		}
		var want []sqsevent.Record
		for _, m := range full.Records {
			want = append(want, sqsevent.Record{
				MessageID: m.MessageId, ReceiptHandle: m.ReceiptHandle, Body: m.Body, EventSourceARN: m.EventSourceARN,
				Attributes: sqsevent.Attributes{
					ApproximateReceiveCount: m.Attributes["ApproximateReceiveCount"], SentTimestamp: m.Attributes["SentTimestamp"],
					MessageGroupID: m.Attributes["MessageGroupId"], AWSTraceHeader: m.Attributes["AWSTraceHeader"], SequenceNumber: m.Attributes["SequenceNumber"],
				},
			})
		}
		if len(want) == 0 {
			t.Errorf("%s has no records", name)
		}
		got, err := sqsevent.Decode(payload)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, records (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestDecodeOddEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, payload string
		want          []sqsevent.Record // nil: an error or no record
		fails         bool
	}{
		{"no records", `{}`, nil, false},
		{"null", `{"Records":null}`, nil, false},
		{"cut short", `{"Records":[{"body":"a"}`, nil, true},
		{"another shape", `{"Records":{}}`, nil, true},
		{"not UTF-8", "{\"Records\":[{\"body\":\"a\xff\"}]}", []sqsevent.Record{{Body: "a\uFFFD"}}, false},
		{"half a surrogate pair", `{"Records":[{"body":"\ud800"}]}`, []sqsevent.Record{{Body: "\uFFFD"}}, false},
		{"a name twice", `{"Records":[{"body":"a","body":"b"}]}`, []sqsevent.Record{{Body: "b"}}, false},
		{"more than is read", `{"Records":[{"body":"a","attributes":{"SenderId":"x"},"messageAttributes":{"k":{"stringValue":"v"}}}],"more":[1]}`, []sqsevent.Record{{Body: "a"}}, false},
	} {
		got, err := sqsevent.Decode([]byte(tt.payload))
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" || (err != nil) != tt.fails {
			t.Errorf("%s: error %v, want one: %v; records (-want +got):\n%s", tt.name, err, tt.fails, diff)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ids  []string
		want string
	}{
		{nil, `{"batchItemFailures":[]}`},
		{[]string{"a"}, `{"batchItemFailures":[{"itemIdentifier":"a"}]}`},
		{[]string{"a", `"b\`}, `{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"\"b\\"}]}`},
	} {
		if got, err := sqsevent.Failures(tt.ids); err != nil || string(got) != tt.want {
			t.Errorf("Failures(%q) = %s, %v, want %s", tt.ids, got, err, tt.want)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	one, err := os.ReadFile("../../functions/worker/testdata/sqs.json")
	if err != nil {
		b.Fatal(err)
	}
	var event struct{ Records []json.RawMessage }
	if err := json.Unmarshal(one, &event); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{10, 1000} {
		payload := []byte(`{"Records":[` + strings.TrimSuffix(strings.Repeat(string(event.Records[0])+",", n), ",") + `]}`)
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				if _, err := sqsevent.Decode(payload); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
		})
	}
}
