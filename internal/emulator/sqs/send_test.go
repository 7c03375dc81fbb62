package sqs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}

func number(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("Number"), StringValue: &value}
}

func TestChecksums(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	sent := w.send(url, "Grüße 😀", func(in *awssqs.SendMessageInput) {
		in.MessageAttributes = map[string]types.MessageAttributeValue{"Foo": text("Bar")}
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
		}
	})
	// Computed with an independent implementation of the documented algorithm; the first one was
	// also seen from the service.
	if got, want := aws.ToString(sent.MD5OfMessageAttributes), "ae7155c6026991b6d54b11589678bf9c"; got != want {
		t.Errorf("MD5OfMessageAttributes = %s, want %s", got, want)
	}
	if got, want := aws.ToString(sent.MD5OfMessageSystemAttributes), "62a56dd927315f2b2e12832b84617ea5"; got != want {
		t.Errorf("MD5OfMessageSystemAttributes = %s, want %s", got, want)
	}
	m := w.one(url) // the SDK checks the body's
	if *m.Body != "Grüße 😀" || aws.ToString(m.MD5OfMessageAttributes) != *sent.MD5OfMessageAttributes {
		t.Errorf("received %q with %v, want the body and the checksum that were sent", *m.Body, m.MD5OfMessageAttributes)
	}
}

func TestSendRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	small := w.queue("small", "MaximumMessageSize", "1024")
	manyAttributes := map[string]types.MessageAttributeValue{}
	for i := range 11 {
		manyAttributes[fmt.Sprint(i)] = text("x")
	}
	attribute := func(name string, value types.MessageAttributeValue) func(*awssqs.SendMessageInput) {
		return func(in *awssqs.SendMessageInput) {
			in.MessageAttributes = map[string]types.MessageAttributeValue{name: value}
		}
	}
	body := func(body string) func(*awssqs.SendMessageInput) {
		return func(in *awssqs.SendMessageInput) { in.MessageBody = &body }
	}
	const invalid = "InvalidParameterValue"
	for name, c := range map[string]struct {
		change func(*awssqs.SendMessageInput)
		code   string
	}{
		"empty body": {body(""), "MissingParameter"},
		"NUL":        {body("a\x00"), "InvalidMessageContents"},
		"U+FFFE":     {body("a\uFFFE"), "InvalidMessageContents"},
		"too long":   {body(strings.Repeat("x", 1_048_577)), invalid},
		"over the queue's size": {func(in *awssqs.SendMessageInput) {
			in.QueueUrl = &small
			in.MessageBody = aws.String(strings.Repeat("x", 1025))
		}, invalid},
		"delay over 15 min":           {delayed(901), invalid},
		"negative delay":              {delayed(-1), invalid},
		"group with space":            {inGroup("a b"), invalid},
		"group too long":              {inGroup(strings.Repeat("g", 129)), invalid},
		"group not ASCII":             {inGroup("ü"), invalid},
		"deduplication id with space": {deduplicated("a b"), invalid},
		"11 attributes":               {func(in *awssqs.SendMessageInput) { in.MessageAttributes = manyAttributes }, invalid},
		"attribute name with space":   {attribute("a b", text("x")), invalid},
		"attribute name aws.":         {attribute("aws.x", text("x")), invalid},
		"attribute name Amazon.":      {attribute("Amazon.x", text("x")), invalid},
		"attribute name .x":           {attribute(".x", text("x")), invalid},
		"attribute name a..b":         {attribute("a..b", text("x")), invalid},
		"attribute name too long":     {attribute(strings.Repeat("n", 257), text("x")), invalid},
		"attribute without value":     {attribute("a", text("")), invalid},
		"attribute type":              {attribute("a", types.MessageAttributeValue{DataType: aws.String("Text"), StringValue: aws.String("x")}), invalid},
		"attribute not a number":      {attribute("a", number("seven")), invalid},
		"attribute number too long":   {attribute("a", number(strings.Repeat("1", 39))), invalid},
		"attribute number too large":  {attribute("a", number("1e127")), invalid},
		"attribute illegal character": {attribute("a", text("\x01")), "InvalidMessageContents"},
		"attribute list": {attribute("a", types.MessageAttributeValue{
			DataType: aws.String("String"), StringListValues: []string{"x"},
		}), "AWS.SimpleQueueService.UnsupportedOperation"},
		"system attribute": {func(in *awssqs.SendMessageInput) {
			in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
				"Other": {DataType: aws.String("String"), StringValue: aws.String("x")},
			}
		}, invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x")}
			c.change(in)
			_, err := w.client.SendMessage(t.Context(), in)
			wantCode(t, err, c.code)
		})
	}
}

func TestSendAcceptsWhatIsJustAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	attributes := map[string]types.MessageAttributeValue{
		"a.b_c-1": number("-1.5e126"), "n": number(strings.Repeat("9", 38)), "tiny": number("1E-128"), "zero": number("0.0"),
		"awsome": text("x"), "custom": {DataType: aws.String("String.json"), StringValue: aws.String("{}")},
	}
	size := 0
	for name, a := range attributes {
		size += len(name) + len(*a.DataType) + len(*a.StringValue)
	}
	w.send(url, "\t\n\r "+strings.Repeat("x", 1_048_576-4-size), func(in *awssqs.SendMessageInput) {
		in.MessageAttributes = attributes
		in.MessageGroupId = aws.String("tenant!~" + strings.Repeat("g", 120))
	})
	if got := w.one(url).MessageAttributes; len(got) != len(attributes) {
		t.Errorf("received %d attributes, want %d", len(got), len(attributes))
	}
	// One byte more and the attributes count.
	_, err := w.client.SendMessage(t.Context(), &awssqs.SendMessageInput{
		QueueUrl: &url, MessageBody: aws.String(strings.Repeat("x", 1_048_576-size+1)), MessageAttributes: attributes,
	})
	wantCode(t, err, "InvalidParameterValue")
}

func TestSendBatchRefusesAltogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks")
	entry := func(id, body string) types.SendMessageBatchRequestEntry {
		return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
	}
	var eleven []types.SendMessageBatchRequestEntry
	for i := range 11 {
		eleven = append(eleven, entry(fmt.Sprint(i), "x"))
	}
	send := func(entries ...types.SendMessageBatchRequestEntry) error {
		_, err := w.client.SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		return err
	}
	half := strings.Repeat("x", 524_289)
	wantError[*types.EmptyBatchRequest](t, send([]types.SendMessageBatchRequestEntry{}...))
	wantError[*types.TooManyEntriesInBatchRequest](t, send(eleven...))
	wantError[*types.BatchEntryIdsNotDistinct](t, send(entry("a", "x"), entry("a", "y")))
	wantError[*types.InvalidBatchEntryId](t, send(entry("a b", "x")))
	wantError[*types.InvalidBatchEntryId](t, send(entry(strings.Repeat("i", 81), "x")))
	wantError[*types.BatchRequestTooLong](t, send(entry("a", half), entry("b", half)))
	w.wantDepth(url, "tasks", 0, 0, 0)
}

func TestSendBatchRefusesEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.queue("tasks", "MaximumMessageSize", "1024")
	out, err := w.client.SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{
		QueueUrl: &url,
		Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("good"), MessageBody: aws.String("1")},
			{Id: aws.String("characters"), MessageBody: aws.String("\x00")},
			{Id: aws.String("size"), MessageBody: aws.String(strings.Repeat("x", 1025))},
			{Id: aws.String("delay"), MessageBody: aws.String("x"), DelaySeconds: 901},
			{Id: aws.String("later"), MessageBody: aws.String("2"), DelaySeconds: 5},
			{Id: aws.String("last"), MessageBody: aws.String("3"), MessageAttributes: map[string]types.MessageAttributeValue{"a": text("b")}},
		},
	})
	must(t, out, err)
	failed := map[string]string{}
	for _, f := range out.Failed {
		failed[*f.Id] = *f.Code
		if !f.SenderFault || aws.ToString(f.Message) == "" {
			t.Errorf("failed entry %s: SenderFault %v, message %q, want true and a reason", *f.Id, f.SenderFault, aws.ToString(f.Message))
		}
	}
	want := map[string]string{"characters": "InvalidMessageContents", "size": "InvalidParameterValue", "delay": "InvalidParameterValue"}
	if fmt.Sprint(failed) != fmt.Sprint(want) {
		t.Errorf("failed = %v, want %v", failed, want)
	}
	if len(out.Successful) != 3 || *out.Successful[0].Id != "good" {
		t.Errorf("successful = %v, want good, later and last", out.Successful)
	}
	w.wantDepth(url, "tasks", 2, 0, 1)
	w.wantBodies(w.receive(url, 10), "1", "3")
}
