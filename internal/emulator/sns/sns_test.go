package sns_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/smithy-go"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"agentworker/internal/emulator/sns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, config sns.Config) (*sns.Server, *awssns.Client) {
	t.Helper()
	server, err := sns.New(config)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	return server, awssns.New(awssns.Options{
		Region: "us-east-1", BaseEndpoint: &web.URL, HTTPClient: web.Client(),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
}

func TestPublishKeepsTheNotification(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var heard []sns.Notification
	server, client := serve(t, sns.Config{Topics: []string{"alerts"}, OnPublish: func(n sns.Notification) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, n)
	}})
	message := "line 1\nline 2 <&>\u0007 你好 %41+"
	before := time.Now().Add(-time.Second)
	out, err := client.Publish(t.Context(), &awssns.PublishInput{
		TopicArn: aws.String("arn:aws:sns:us-east-1:000000000000:alerts"),
		Subject:  aws.String("two failed"),
		Message:  &message,
		MessageAttributes: map[string]types.MessageAttributeValue{
			"kind":  {DataType: aws.String("String"), StringValue: aws.String("dlq")},
			"count": {DataType: aws.String("Number"), StringValue: aws.String("-1.5e3")},
			"raw":   {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		},
	})
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	want := []sns.Notification{{
		Type: "Notification", MessageID: aws.ToString(out.MessageId), TopicARN: server.TopicARN("alerts"),
		Subject: "two failed", Message: message,
		MessageAttributes: map[string]sns.Attribute{
			"kind": {Type: "String", Value: "dlq"}, "count": {Type: "Number", Value: "-1.5e3"}, "raw": {Type: "Binary", Value: "AP8="},
		},
	}}
	got := server.Notifications()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(sns.Notification{}, "Timestamp")); diff != "" {
		t.Fatalf("notifications (-want +got):\n%s", diff)
	}
	if at := got[0].Timestamp; at.Before(before) || at.After(time.Now()) {
		t.Errorf("timestamp: got %v, want now", at)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(got, heard); diff != "" {
		t.Errorf("OnPublish (-kept +heard):\n%s", diff)
	}
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	server, client := serve(t, sns.Config{Topics: []string{"alerts"}})
	arn := server.TopicARN("alerts")
	attribute := func(dataType, value string) map[string]types.MessageAttributeValue {
		return map[string]types.MessageAttributeValue{"a": {DataType: &dataType, StringValue: &value}}
	}
	for name, c := range map[string]struct {
		input         awssns.PublishInput
		code, message string
	}{
		"unknown topic":      {awssns.PublishInput{TopicArn: aws.String(server.TopicARN("other")), Message: aws.String("m")}, "NotFound", "Topic does not exist"},
		"no ARN":             {awssns.PublishInput{TopicArn: aws.String("alerts"), Message: aws.String("m")}, "InvalidParameter", "Invalid parameter: TopicArn"},
		"no topic":           {awssns.PublishInput{Message: aws.String("m")}, "InvalidParameter", "Invalid parameter: TopicArn or TargetArn"},
		"phone":              {awssns.PublishInput{PhoneNumber: aws.String("+1"), Message: aws.String("m")}, "InvalidParameter", "Invalid parameter: PhoneNumber"},
		"empty message":      {awssns.PublishInput{TopicArn: &arn, Message: aws.String("")}, "InvalidParameter", "Invalid parameter: Empty message"},
		"empty subject":      {awssns.PublishInput{TopicArn: &arn, Message: aws.String("m"), Subject: aws.String("")}, "InvalidParameter", "Invalid parameter: Subject"},
		"subject of 101":     {awssns.PublishInput{TopicArn: &arn, Message: aws.String("m"), Subject: aws.String(strings.Repeat("s", 101))}, "InvalidParameter", "Invalid parameter: Subject"},
		"subject of 2 lines": {awssns.PublishInput{TopicArn: &arn, Message: aws.String("m"), Subject: aws.String("a\nb")}, "InvalidParameter", "Invalid parameter: Subject"},
		"message too long":   {awssns.PublishInput{TopicArn: &arn, Message: aws.String(strings.Repeat("é", 1<<17) + "!")}, "InvalidParameter", "Invalid parameter: Message too long"},
		"attributes count": {
			awssns.PublishInput{TopicArn: &arn, Message: aws.String(strings.Repeat("x", 1<<18-7)), MessageAttributes: attribute("String", "v")},
			"InvalidParameter", "Invalid parameter: Message too long",
		},
		"attribute type":       {awssns.PublishInput{TopicArn: &arn, Message: aws.String("m"), MessageAttributes: attribute("Text", "v")}, "ParameterValueInvalid", "The message attribute 'a'"},
		"attribute empty":      {awssns.PublishInput{TopicArn: &arn, Message: aws.String("m"), MessageAttributes: attribute("String", "")}, "ParameterValueInvalid", "The message attribute 'a'"},
		"attribute no number":  {awssns.PublishInput{TopicArn: &arn, Message: aws.String("m"), MessageAttributes: attribute("Number", "0x1")}, "ParameterValueInvalid", "The message attribute 'a'"},
		"structure no default": {awssns.PublishInput{TopicArn: &arn, Message: aws.String(`{"sms":"x"}`), MessageStructure: aws.String("json")}, "InvalidParameter", "Invalid parameter: Message Structure - No default"},
		"structure no JSON":    {awssns.PublishInput{TopicArn: &arn, Message: aws.String(`x`), MessageStructure: aws.String("json")}, "InvalidParameter", "Invalid parameter: Message Structure - JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.Publish(t.Context(), &c.input)
			var got smithy.APIError
			if !errors.As(err, &got) || got.ErrorCode() != c.code || !strings.HasPrefix(got.ErrorMessage(), c.message) {
				t.Errorf("got %v, want %s: %s…", err, c.code, c.message)
			}
			if c.code == "NotFound" {
				var typed *types.NotFoundException
				if !errors.As(err, &typed) {
					t.Errorf("got %T, want the SDK's NotFoundException", err)
				}
			}
		})
	}
	t.Cleanup(func() {
		if got := server.Notifications(); len(got) != 0 {
			t.Errorf("kept of what was refused: %v", got)
		}
	})
}

func TestPublishTakesWhatIsJustAllowed(t *testing.T) {
	t.Parallel()
	server, client := serve(t, sns.Config{Topics: []string{"alerts"}})
	arn := server.TopicARN("alerts")
	long := strings.Repeat("你", 1<<18/3) + "!" // 262,144 bytes, three times that in the form
	for name, input := range map[string]*awssns.PublishInput{
		"longest message": {TopicArn: &arn, Message: &long},
		"longest subject": {TopicArn: &arn, Message: aws.String("m"), Subject: aws.String(strings.Repeat("ü", 100))},
		"target ARN":      {TargetArn: &arn, Message: aws.String("m")},
	} {
		if _, err := client.Publish(t.Context(), input); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Publish(t.Context(), &awssns.PublishInput{
		TopicArn: &arn, MessageStructure: aws.String("json"), Message: aws.String(`{"default":"for all","sms":"short"}`),
	}); err != nil {
		t.Fatalf("structure json: %v", err)
	}
	kept := server.Notifications()
	if got := kept[len(kept)-1].Message; got != "for all" {
		t.Errorf("message of structure json: got %q, want its default", got)
	}
}

func TestOnlyTheNewestAreKept(t *testing.T) {
	t.Parallel()
	server, client := serve(t, sns.Config{Topics: []string{"t"}, Keep: 2})
	arn := server.TopicARN("t")
	for i := range 5 {
		if _, err := client.Publish(t.Context(), &awssns.PublishInput{TopicArn: &arn, Message: aws.String(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, n := range server.Notifications() {
		got = append(got, n.Message)
	}
	if diff := cmp.Diff([]string{"3", "4"}, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestTopicsAreCreatedOnceAndListedInPages(t *testing.T) {
	t.Parallel()
	server, client := serve(t, sns.Config{Region: "eu-west-1", AccountID: "123456789012", Topics: []string{"t-000"}})
	var want []string
	for i := range 201 {
		name := fmt.Sprintf("t-%03d", i)
		for range 2 {
			out, err := client.CreateTopic(t.Context(), &awssns.CreateTopicInput{Name: &name})
			if err != nil || aws.ToString(out.TopicArn) != "arn:aws:sns:eu-west-1:123456789012:"+name {
				t.Fatalf("create %s: got %v, %v", name, out, err)
			}
		}
		want = append(want, server.TopicARN(name))
	}
	var got []string
	pages := awssns.NewListTopicsPaginator(client, &awssns.ListTopicsInput{})
	count := 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		count++
		for _, topic := range page.Topics {
			got = append(got, aws.ToString(topic.TopicArn))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || count != 3 {
		t.Errorf("%d pages, want 3; topics (-want +got):\n%s", count, diff)
	}
	for _, name := range []string{"", "a b", "x.fifo", strings.Repeat("n", 257)} {
		if _, err := server.CreateTopic(name); err == nil {
			t.Errorf("create %q: got no error", name)
		}
	}
}

func TestProtocolErrorsAreXML(t *testing.T) {
	t.Parallel()
	server, err := sns.New(sns.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]struct {
		status int
		code   string
	}{
		"Action=Subscribe": {400, "InvalidAction"},
		"a=b":              {400, "MissingAction"},
		"a=%zz":            {400, "MalformedQueryString"},
		"Action=Publish&Message=" + strings.Repeat("x", 5<<20):                                              {413, "RequestEntityTooLarge"},
		url.Values{"Action": {"Publish"}, "Message": {"\xff"}, "TopicArn": {server.TopicARN("t")}}.Encode(): {400, "InvalidParameter"},
	} {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body)))
		if got := w.Body.String(); w.Code != want.status || !strings.Contains(got, "<Code>"+want.code+"</Code>") ||
			!strings.Contains(got, "<RequestId>"+w.Header().Get("X-Amzn-Requestid")+"</RequestId>") {
			t.Errorf("%.40s: got %d %s, want %d %s with the request id", body, w.Code, got, want.status, want.code)
		}
	}
}

func TestNotificationsAreServedAsJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := sns.New(sns.Config{Topics: []string{"t"}})
		if err != nil {
			t.Fatal(err)
		}
		get := func(method string) (*http.Response, string) {
			w := httptest.NewRecorder()
			server.NotificationsHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
			body, _ := io.ReadAll(w.Result().Body)
			return w.Result(), string(body)
		}
		if _, body := get("GET"); strings.TrimSpace(body) != "[]" {
			t.Errorf("without notifications: got %s, want []", body)
		}
		form := url.Values{"Action": {"Publish"}, "TopicArn": {server.TopicARN("t")}, "Message": {"m"}}
		server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(form.Encode())))
		resp, body := get("GET")
		var got []map[string]string
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got) != 1 {
			t.Fatalf("got %s, %v, want one notification", body, err)
		}
		delete(got[0], "MessageId")
		want := map[string]string{
			"Type": "Notification", "TopicArn": "arn:aws:sns:us-east-1:000000000000:t", "Message": "m",
			"Timestamp": "2000-01-01T00:00:00Z",
		}
		if diff := cmp.Diff(want, got[0]); diff != "" || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("type %q, body (-want +got):\n%s", resp.Header.Get("Content-Type"), diff)
		}
		if resp, _ := get("DELETE"); resp.StatusCode != 405 {
			t.Errorf("DELETE: got %d, want 405", resp.StatusCode)
		}
	})
}

func TestTopicAttributes(t *testing.T) {
	t.Parallel()
	server, client := serve(t, sns.Config{Topics: []string{"alerts"}})
	arn := server.TopicARN("alerts")
	get := func() map[string]string {
		t.Helper()
		out, err := client.GetTopicAttributes(t.Context(), &awssns.GetTopicAttributesInput{TopicArn: &arn})
		if err != nil {
			t.Fatal(err)
		}
		return out.Attributes
	}
	if a := get(); a["TopicArn"] != arn || !strings.Contains(a["Policy"], `"AWS:SourceOwner":"000000000000"`) || a["SubscriptionsConfirmed"] != "1" {
		t.Errorf("a new topic: got %v, want the default policy and the one who reads here", a)
	}
	set := func(arn, name, value string) error {
		_, err := client.SetTopicAttributes(t.Context(), &awssns.SetTopicAttributesInput{TopicArn: &arn, AttributeName: &name, AttributeValue: &value})
		return err
	}
	if err := errors.Join(set(arn, "Policy", `{"Statement":[]}`), set(arn, "KmsMasterKeyId", "alias/mine")); err != nil {
		t.Fatal(err)
	}
	if a := get(); a["Policy"] != `{"Statement":[]}` || a["KmsMasterKeyId"] != "alias/mine" {
		t.Errorf("after a change: got %v, want it there", a)
	}
	if err := set(arn, "KmsMasterKeyId", ""); err != nil {
		t.Fatal(err)
	}
	if a := get(); a["KmsMasterKeyId"] != "" {
		t.Errorf("the key taken away: got %v", a)
	}
	for _, bad := range []error{set(arn, "Policy", "no JSON"), set(arn, "Owner", "me")} {
		var api smithy.APIError
		if !errors.As(bad, &api) || api.ErrorCode() != "InvalidParameter" {
			t.Errorf("got %v, want an InvalidParameter", bad)
		}
	}
	var absent *types.NotFoundException
	if err := set(arn+"-other", "Policy", "{}"); !errors.As(err, &absent) {
		t.Errorf("set another topic's: got %v, want NotFound", err)
	}
	if _, err := client.GetTopicAttributes(t.Context(), &awssns.GetTopicAttributesInput{TopicArn: aws.String(arn + "-other")}); !errors.As(err, &absent) {
		t.Errorf("get another topic's: got %v, want NotFound", err)
	}
}
