package cloudformation_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awscloudformation "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"agentworker/internal/emulator/cloudformation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T) (*cloudformation.Server, *awscloudformation.Client) {
	t.Helper()
	server := cloudformation.New(cloudformation.Config{})
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	return server, awscloudformation.New(awscloudformation.Options{
		Region: "us-east-1", BaseEndpoint: &web.URL, HTTPClient: web.Client(), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
}

var created = time.Date(2026, 11, 29, 12, 0, 0, 123e6, time.UTC)

func TestAStackIsDescribed(t *testing.T) {
	t.Parallel()
	server, client := serve(t)
	server.Put(cloudformation.Stack{Name: "b", Status: cloudformation.CreateInProgress, CreatedAt: created})
	server.Put(cloudformation.Stack{Name: "a", Status: cloudformation.CreateComplete, CreatedAt: created})
	server.Put(cloudformation.Stack{
		Name: "b", Description: "<&>", Status: cloudformation.CreateComplete, CreatedAt: created,
		Tags:    []cloudformation.Tag{{Key: "app", Value: "x"}},
		Outputs: []cloudformation.Output{{Key: "QueueUrl", Value: "http://127.0.0.1:4566/q?a=1&b=2", Description: "the queue"}},
	})
	id := server.StackID("b")
	want := types.Stack{
		StackName: aws.String("b"), StackId: &id, Description: aws.String("<&>"), StackStatus: types.StackStatusCreateComplete,
		CreationTime: &created, DisableRollback: aws.Bool(false),
		Tags:    []types.Tag{{Key: aws.String("app"), Value: aws.String("x")}},
		Outputs: []types.Output{{OutputKey: aws.String("QueueUrl"), OutputValue: aws.String("http://127.0.0.1:4566/q?a=1&b=2"), Description: aws.String("the queue")}},
	}
	for _, by := range []string{"b", id} {
		out, err := client.DescribeStacks(t.Context(), &awscloudformation.DescribeStacksInput{StackName: &by})
		if err != nil {
			t.Fatalf("describe %s: %v", by, err)
		}
		if diff := cmp.Diff([]types.Stack{want}, out.Stacks, cmpopts.IgnoreUnexported(types.Stack{}, types.Tag{}, types.Output{})); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", by, diff)
		}
	}
	out, err := client.DescribeStacks(t.Context(), &awscloudformation.DescribeStacksInput{})
	if err != nil || len(out.Stacks) != 2 || aws.ToString(out.Stacks[0].StackName) != "a" {
		t.Errorf("without a name: got %+v, %v, want both stacks, once each", out, err)
	}
}

func TestResourcesAreListed(t *testing.T) {
	t.Parallel()
	server, client := serve(t)
	server.Put(cloudformation.Stack{Name: "a", Status: cloudformation.CreateComplete, CreatedAt: created, Resources: []cloudformation.Resource{
		{LogicalID: "Table", PhysicalID: "agent-checkpoints", Type: "AWS::DynamoDB::Table"},
		{LogicalID: "TasksQueue", PhysicalID: "http://127.0.0.1:4566/000000000000/agent-tasks", Type: "AWS::SQS::Queue"},
	}})
	pages := awscloudformation.NewListStackResourcesPaginator(client, &awscloudformation.ListStackResourcesInput{StackName: aws.String("a")})
	var got []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.StackResourceSummaries {
			got = append(got, strings.Join([]string{*r.LogicalResourceId, *r.ResourceType, *r.PhysicalResourceId, string(r.ResourceStatus), r.LastUpdatedTimestamp.String()}, " "))
		}
	}
	want := []string{
		"Table AWS::DynamoDB::Table agent-checkpoints CREATE_COMPLETE " + created.String(),
		"TasksQueue AWS::SQS::Queue http://127.0.0.1:4566/000000000000/agent-tasks CREATE_COMPLETE " + created.String(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsNotThereIsAnErrorWithItsCode(t *testing.T) {
	t.Parallel()
	_, client := serve(t)
	for what, c := range map[string]struct {
		call          func() error
		code, message string
	}{
		"a stack": {func() error {
			_, err := client.DescribeStacks(t.Context(), &awscloudformation.DescribeStacksInput{StackName: aws.String("agentworker-dev")})
			return err
		}, "ValidationError", "Stack with id agentworker-dev does not exist"},
		"a stack's resources": {func() error {
			_, err := client.ListStackResources(t.Context(), &awscloudformation.ListStackResourcesInput{StackName: aws.String("x")})
			return err
		}, "ValidationError", "Stack with id x does not exist"},
		"an action": {func() error {
			_, err := client.DeleteStack(t.Context(), &awscloudformation.DeleteStackInput{StackName: aws.String("x")})
			return err
		}, "InvalidAction", "served here are DescribeStacks and ListStackResources"},
	} {
		var got smithy.APIError
		if err := c.call(); !errors.As(err, &got) || got.ErrorCode() != c.code || !strings.Contains(got.ErrorMessage(), c.message) {
			t.Errorf("%s: got %v, want %s: %s", what, err, c.code, c.message)
		}
	}
}
