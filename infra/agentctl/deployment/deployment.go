// Package deployment finds a running stack, on AWS or on this machine, by its outputs: nobody has to copy a queue's
// URL.
package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"agentworker/internal/awsclient"
	"agentworker/internal/awsprofile"
	"agentworker/internal/topology"
)

// DefaultEndpoint is where the local chain's AWS APIs are unless somebody says otherwise.
const DefaultEndpoint = "http://127.0.0.1:4566"

// DefaultStage is the stage that is deployed unless somebody names another.
const DefaultStage = "dev"

// Options say which stack is meant. The zero value is the stage dev in the region of the environment.
type Options struct {
	// Stage of the stack; "": [DefaultStage]. The local chain has but one, and takes no notice of it.
	Stage string
	// Region of the stack; "": that of the environment or of the profile.
	Region string
	// Local is the chain on this machine, which takes any credentials.
	Local bool
	// Endpoint is where the local chain's AWS APIs are; "": AWS_ENDPOINT_URL, else AWS_PORT on this machine, else
	// [DefaultEndpoint]. Without Local it has no meaning: the SDK's own variables then say where AWS is.
	Endpoint string
}

// Queue is one of the two task queues.
type Queue struct{ URL, DeadLetterURL string }

// Deployment is a stack that is there.
type Deployment struct {
	Name  string // of the stack
	Local bool
	// AWS is what clients of all services are made from.
	AWS aws.Config
	// APIURL is where the HTTP API is, without a slash at the end.
	APIURL   string
	Table    string
	TopicARN string
	Tasks    Queue // independent tasks
	Ordered  Queue
	// AllowedTopics are the SNS topics, by ARN, whose notifications may hold tasks.
	AllowedTopics []string
}

// answerTimeout bounds the wait for an answer of AWS to begin. It is longer than the longest poll of a queue.
const answerTimeout = 30 * time.Second

// Find asks CloudFormation for the stack. Its error is an [UnreachableError] when nobody can be asked, or when there is
// no such stack.
func Find(ctx context.Context, o Options) (*Deployment, error) {
	d := &Deployment{Name: topology.StackName(cmp.Or(o.Stage, DefaultStage)), Local: o.Local}
	if o.Local {
		d.Name = topology.StackName(topology.LocalStage)
	}
	var err error
	if d.AWS, err = configuration(ctx, o); err != nil {
		return nil, err
	}
	stack, err := d.describe(ctx)
	if err != nil {
		return nil, err
	}
	return d, d.read(stack)
}

func configuration(ctx context.Context, o Options) (aws.Config, error) {
	if o.Local {
		return local(o)
	}
	var options []func(*config.LoadOptions) error
	if o.Region != "" {
		options = append(options, config.WithRegion(o.Region))
	}
	cfg, err := awsprofile.Load(ctx, answerTimeout, options...)
	switch {
	case err != nil:
		return cfg, unreachable(err, "the AWS configuration cannot be used: %v", err)
	case cfg.Region == "":
		return cfg, unreachable(nil, "no region is set: give --region, or set AWS_REGION")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return cfg, explainCredentials(err)
	}
	return cfg, nil
}

// local takes no notice of the profiles of whoever runs it: nothing of it may lead to a real account. The SDK's
// variables for the endpoints of single services count, as they do for the chain itself.
func local(o Options) (aws.Config, error) {
	environment, err := config.NewEnvConfig()
	if err != nil {
		return aws.Config{}, unreachable(err, "the AWS variables of the environment cannot be used: %v", err)
	}
	return aws.Config{
		Region:        cmp.Or(o.Region, "us-east-1"),
		Credentials:   credentials.NewStaticCredentialsProvider("local", "local", ""),
		BaseEndpoint:  aws.String(o.localEndpoint()),
		HTTPClient:    awsclient.HTTPClient(answerTimeout),
		ConfigSources: []any{environment},
	}, nil
}

func (o Options) localEndpoint() string {
	if port := os.Getenv("AWS_PORT"); port != "" {
		return cmp.Or(o.Endpoint, os.Getenv("AWS_ENDPOINT_URL"), "http://127.0.0.1:"+port)
	}
	return cmp.Or(o.Endpoint, os.Getenv("AWS_ENDPOINT_URL"), DefaultEndpoint)
}

func (d *Deployment) describe(ctx context.Context) (types.Stack, error) {
	client := cloudformation.NewFromConfig(d.AWS, func(o *cloudformation.Options) {
		if d.Local {
			o.RetryMaxAttempts = 1 // it is there or not
		}
	})
	out, err := client.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &d.Name})
	if err != nil {
		return types.Stack{}, d.explainStack(err)
	}
	if len(out.Stacks) == 0 {
		return types.Stack{}, d.noStack(nil)
	}
	return out.Stacks[0], nil
}

// read takes what commands need from the outputs.
func (d *Deployment) read(stack types.Stack) error {
	values := map[string]string{}
	for _, o := range stack.Outputs {
		values[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	switch {
	case len(values) > 0:
	case stack.StackStatus != types.StackStatusCreateInProgress:
		return unreachable(nil, "the stack %s has no outputs, its status is %s: aws cloudformation describe-stack-events --stack-name %s says why; then deploy it again",
			d.Name, stack.StackStatus, d.Name)
	default:
		return unreachable(nil, "the stack %s has no outputs yet, its status is %s: wait until it is deployed", d.Name, stack.StackStatus)
	}
	var missing []error
	for name, to := range map[string]*string{
		topology.OutputAPIURL: &d.APIURL, topology.OutputTableName: &d.Table, topology.OutputTopicARN: &d.TopicARN,
		topology.OutputQueueURL: &d.Tasks.URL, topology.OutputDeadLetterURL: &d.Tasks.DeadLetterURL,
		topology.OutputOrderedQueueURL: &d.Ordered.URL, topology.OutputOrderedDeadLetterURL: &d.Ordered.DeadLetterURL,
	} {
		if *to = values[name]; *to == "" {
			missing = append(missing, fmt.Errorf("the stack %s has no output %s: deploy it again with this version", d.Name, name))
		}
	}
	if len(missing) > 0 {
		return unreachable(errors.Join(missing...), "%v", missing[0])
	}
	if topics := values[topology.OutputAllowedTopics]; topics != "" {
		d.AllowedTopics = strings.Split(topics, ",")
	}
	return nil
}
