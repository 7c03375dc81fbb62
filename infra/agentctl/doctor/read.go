package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"agentworker/infra/agentctl/deployment"
)

// Read looks at everything that is judged. The error says what is in the way of looking, such as a connection; what may
// not be read, or is not there, is in the state.
func Read(ctx context.Context, d *deployment.Deployment) (State, error) {
	r := &reader{
		deployment:     d,
		state:          State{Stack: d.Name, TableName: d.Table, TopicARN: d.TopicARN, Local: d.Local, Plain: strings.HasPrefix(d.Tasks.URL, "http://")},
		cloudformation: cloudformation.NewFromConfig(d.AWS), cloudwatch: cloudwatch.NewFromConfig(d.AWS),
		dynamodb: dynamodb.NewFromConfig(d.AWS), eventbridge: eventbridge.NewFromConfig(d.AWS), iam: iam.NewFromConfig(d.AWS),
		lambda: lambda.NewFromConfig(d.AWS), sns: sns.NewFromConfig(d.AWS), sqs: sqs.NewFromConfig(d.AWS),
	}
	for _, step := range []func(context.Context) error{
		r.readResources, r.readQueues, r.readFunctions, r.readRoles, r.readAlarms, r.readRule, r.readTable, r.readTopic,
	} {
		if err := step(ctx); err != nil {
			return State{}, d.Explain(err)
		}
	}
	return r.state, nil
}

type reader struct {
	deployment *deployment.Deployment
	state      State
	resources  []resource

	cloudformation *cloudformation.Client
	cloudwatch     *cloudwatch.Client
	dynamodb       *dynamodb.Client
	eventbridge    *eventbridge.Client
	iam            *iam.Client
	lambda         *lambda.Client
	sns            *sns.Client
	sqs            *sqs.Client
}

// resource is a part of the stack as CloudFormation has it.
type resource struct{ logicalID, kind, physicalID string }

const (
	functionType = "AWS::Lambda::Function"
	alarmType    = "AWS::CloudWatch::Alarm"
	ruleType     = "AWS::Events::Rule"
	queueType    = "AWS::SQS::Queue"
	tableType    = "AWS::DynamoDB::Table"
	topicType    = "AWS::SNS::Topic"
)

// readResources asks for the parts that no output names.
func (r *reader) readResources(ctx context.Context) error {
	pages := cloudformation.NewListStackResourcesPaginator(r.cloudformation, &cloudformation.ListStackResourcesInput{StackName: &r.deployment.Name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if ok, err := r.judge(err, "cloudformation:ListStackResources", "functions, alarms and the schedule", resource{}); !ok {
			return err
		}
		for _, s := range page.StackResourceSummaries {
			if s.ResourceStatus == types.ResourceStatusDeleteComplete {
				continue // it was part of the stack
			}
			r.resources = append(r.resources, resource{aws.ToString(s.LogicalResourceId), aws.ToString(s.ResourceType), aws.ToString(s.PhysicalResourceId)})
		}
	}
	return nil
}

// find gives the stack's first resource of a type whose logical id begins with a prefix.
func (r *reader) find(kind, prefix string) (resource, bool) {
	i := slices.IndexFunc(r.resources, func(x resource) bool {
		return x.kind == kind && strings.HasPrefix(x.logicalID, prefix) && x.physicalID != ""
	})
	if i < 0 {
		return resource{}, false
	}
	return r.resources[i], true
}

// How services say that the caller may not, that there is no such thing, and that they do not know the call.
// Source: the services' API References, "Common Errors".
var (
	deniedCodes   = []string{"AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException", "UnauthorizedOperation", "UnauthorizedException"}
	absentCodes   = []string{"ResourceNotFoundException", "ResourceNotFound", "NotFound", "NotFoundException", "NoSuchEntity", "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"}
	unservedCodes = []string{"UnknownOperationException", "UnknownOperation", "InvalidAction"}
)

// judge sorts the error of a call: ok is true when there is none. What the caller may not do, what the place does not know and
// what is throttled, however often the SDK tries, is noted under the IAM action and what it would have read; what is missing, when it is a named resource, as
// missing. Any other error is returned.
func (r *reader) judge(err error, action, what string, of resource) (ok bool, _ error) {
	if err == nil {
		return true, nil
	}
	var api smithy.APIError
	var garbled *smithy.DeserializationError
	switch {
	case errors.As(err, &api):
	case errors.As(err, &garbled):
		r.notMade(what, action, NotUnderstood)
		return false, nil
	default:
		return false, fmt.Errorf("%s of %s: %w", action, what, err)
	}
	code := api.ErrorCode()
	_, throttled := retry.DefaultThrottleErrorCodes[code]
	switch {
	case slices.Contains(deniedCodes, code):
		r.notMade(what, action, NotPermitted)
	case throttled:
		r.notMade(what, action, Throttled)
	case slices.Contains(unservedCodes, code), statusOf(err) == http.StatusNotImplemented:
		r.notMade(what, action, NotServed)
	case slices.Contains(absentCodes, code):
		if of.kind != "" {
			r.missing(of.kind, of.physicalID)
		}
	default:
		return false, fmt.Errorf("%s of %s: %w", action, what, err)
	}
	return false, nil
}

// statusOf is the HTTP status of a refused call, by which emulators say that they do not know it.
func statusOf(err error) int {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

func (r *reader) notMade(what, needs string, why Why) {
	r.state.NotMade = append(r.state.NotMade, NotMade{What: what, Needs: needs, Why: why})
}

func (r *reader) missing(kind, name string) {
	r.state.Missing = append(r.state.Missing, Resource{kind, name})
}
