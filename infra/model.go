package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/config"
)

// modelTimeout is the worker's own when none is set.
const modelTimeout = 45 * time.Second

// validateModel reports what does not go together in what the worker asks and searches, by the settings' names.
func (s Settings) validateModel() []error {
	c := s.Worker
	c.MaxReceiveCount, c.RecordRetention = 1, 24*time.Hour // not judged here
	var problems []error
	if err := c.Validate(); err != nil {
		names := strings.NewReplacer(
			"MODEL_TIMEOUT", "modelTimeoutSeconds", "MODEL", "model", "MAX_TOKENS_PER_TASK", "maxTokensPerTask", "RETRIEVER", "retriever",
			"OPENAI_BASE_URL", "openaiBaseUrl", "OPENAI_API_KEY_SECRET", "openaiKeySecret", "OPENAI_API_KEY_PARAMETER", "openaiKeyParameter",
			"ALLOWED_TOPICS", "allowedTopics")
		problems = append(problems, errors.New(names.Replace(err.Error())))
	}
	provider, _, _ := strings.Cut(c.Model, ":")
	if provider == "openai" && c.OpenAIBaseURL == "" && c.OpenAIKeySecret == "" && c.OpenAIKeyParameter == "" {
		problems = append(problems, errors.New("model is of OpenAI's and nothing says where its key lies; set openaiKeySecret or openaiKeyParameter"))
	}
	if secret := c.OpenAIKeySecret; secret != "" && (!strings.HasPrefix(secret, "arn:") || strings.Count(secret, ":") != 6) {
		problems = append(problems, errors.New("openaiKeySecret is not a secret's ARN; set the whole ARN"))
	}
	if strings.HasPrefix(c.Retriever, "folder:") {
		problems = append(problems, errors.New("retriever is a folder, which is on a laptop only; set s3://bucket/prefix or kb:id"))
	}
	limit := c.ModelTimeout
	if limit == 0 {
		limit = modelTimeout
	}
	if timeout := s.Topology.Worker.Timeout; (provider == "bedrock" || provider == "openai") && limit >= timeout {
		problems = append(problems, fmt.Errorf("a call of the model may take %v and the worker %v; set modelTimeoutSeconds to less, or workerTimeoutSeconds to more", limit, timeout))
	}
	return problems
}

// allowModel grants what the worker needs for the model, the documents and the key that it is configured with.
func (f *Function) allowModel(c config.Worker) {
	stack := awscdk.Stack_Of(f.scope)
	arn := func(service, account, resource string) *string {
		return jsii.String("arn:" + *stack.Partition() + ":" + service + ":" + *stack.Region() + ":" + account + ":" + resource)
	}
	if model, ok := strings.CutPrefix(c.Model, "bedrock:"); ok {
		f.allowBedrock(model, arn)
	}
	if id, ok := strings.CutPrefix(c.Retriever, "kb:"); ok {
		f.Allow(arn("bedrock", *stack.Account(), "knowledge-base/"+id), "bedrock:Retrieve")
	}
	if location, ok := strings.CutPrefix(c.Retriever, "s3://"); ok {
		bucket, prefix, _ := strings.Cut(location, "/")
		if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
			prefix += "/"
		}
		bucketARN := "arn:" + *stack.Partition() + ":s3:::" + bucket
		f.Allow(jsii.String(bucketARN+"/"+prefix+"*"), "s3:GetObject")
		f.allowIf(jsii.String(bucketARN), "StringLike", "s3:prefix", jsii.String(prefix+"*"), "s3:ListBucket")
	}
	if c.OpenAIKeySecret != "" {
		f.Allow(&c.OpenAIKeySecret, "secretsmanager:GetSecretValue")
	}
	if c.OpenAIKeyParameter != "" {
		f.Allow(arn("ssm", *stack.Account(), "parameter/"+strings.TrimPrefix(c.OpenAIKeyParameter, "/")), "ssm:GetParameter")
	}
}

// profile is the id of an inference profile of Bedrock's own: a model's id behind a part of the world.
var profile = regexp.MustCompile(`^(us|us-gov|eu|apac|jp|au|ca|global)\.(.+)$`)

// allowBedrock grants a model by its id, by the id of an inference profile, or by an ARN. A profile sends a call on to one
// of several regions, in each of which the model has to be allowed, though only by way of the profile.
// Source: Amazon Bedrock User Guide, "Prerequisites for inference profiles".
func (f *Function) allowBedrock(model string, arn func(service, account, resource string) *string) {
	const invoke = "bedrock:InvokeModel"
	stack := awscdk.Stack_Of(f.scope)
	anywhere := "arn:" + *stack.Partition() + ":bedrock:*::foundation-model/"
	switch parts := profile.FindStringSubmatch(model); {
	case parts != nil:
		by := arn("bedrock", *stack.Account(), "inference-profile/"+model)
		f.Allow(by, invoke)
		f.allowIf(jsii.String(anywhere+parts[2]), "StringEquals", "bedrock:InferenceProfileArn", by, invoke)
	case strings.Contains(model, "inference-profile/"):
		f.Allow(&model, invoke)
		f.allowIf(jsii.String(anywhere+"*"), "StringEquals", "bedrock:InferenceProfileArn", &model, invoke)
	case strings.HasPrefix(model, "arn:"):
		f.Allow(&model, invoke)
	default:
		f.Allow(arn("bedrock", "", "foundation-model/"+model), invoke)
	}
}

// allowIf grants under a condition.
func (f *Function) allowIf(resource *string, operator, key string, value *string, actions ...string) {
	f.Role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings(actions...), Resources: &[]*string{resource},
		Conditions: &map[string]any{operator: map[string]any{key: value}},
	}))
}

// acceptFrom lets SNS topics send to a queue of the same type, so that they can be subscribed to it.
func (q *TaskQueue) acceptFrom(topics []string) {
	for _, topic := range topics {
		if strings.HasSuffix(topic, ".fifo") != q.TaskQueue.Queue.FIFO {
			continue
		}
		q.Queue.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("sns.amazonaws.com"), nil)},
			Actions:    jsii.Strings("sqs:SendMessage"),
			Resources:  &[]*string{q.Queue.QueueArn()},
			Conditions: &map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": topic}},
		}))
	}
}
