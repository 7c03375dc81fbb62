package main

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
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
		for problem := range strings.SplitSeq(names.Replace(err.Error()), "\n") {
			problems = append(problems, errors.New(problem))
		}
	}
	provider, model, _ := strings.Cut(c.Model, ":")
	if provider == "bedrock" && !modelID.MatchString(model) {
		problems = append(problems, errors.New("model is not a model's or an inference profile's; set bedrock: and its id or ARN"))
	}
	for _, own := range []struct{ name, value string }{
		{"openaiBaseUrl", c.OpenAIBaseURL}, {"openaiKeySecret", c.OpenAIKeySecret}, {"openaiKeyParameter", c.OpenAIKeyParameter},
	} {
		if own.value != "" && provider != "openai" {
			problems = append(problems, fmt.Errorf("%s is of no use with another model than OpenAI's; set model to openai:<model>", own.name))
		}
	}
	if provider == "openai" && c.OpenAIBaseURL == "" && c.OpenAIKeySecret == "" && c.OpenAIKeyParameter == "" {
		problems = append(problems, errors.New("model is of OpenAI's and nothing says where its key lies; set openaiKeySecret or openaiKeyParameter"))
	}
	if u, err := url.Parse(c.OpenAIBaseURL); err == nil && u.Scheme == "http" {
		problems = append(problems, errors.New("openaiBaseUrl is without TLS: the key and what is asked would cross the internet in the clear; set an https URL"))
	}
	if c.OpenAIKeySecret != "" && !secretARN.MatchString(c.OpenAIKeySecret) {
		problems = append(problems, errors.New("openaiKeySecret is not a secret's ARN; set the whole ARN, with the hyphen and the six characters at its end"))
	}
	if c.OpenAIKeyParameter != "" && !parameterName.MatchString(c.OpenAIKeyParameter) {
		problems = append(problems, errors.New("openaiKeyParameter is not a parameter's name; set one such as /agentworker/openai-key"))
	}
	if location, ok := strings.CutPrefix(c.Retriever, "s3://"); ok && !bucketAndPrefix.MatchString(location) {
		problems = append(problems, errors.New("retriever has no bucket's name; set s3://bucket or s3://bucket/prefix, without * and ?"))
	}
	if id, ok := strings.CutPrefix(c.Retriever, "kb:"); ok && !knowledgeBaseID.MatchString(id) {
		problems = append(problems, errors.New("retriever has no knowledge base's id; set kb: and its ten letters and digits"))
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
	// 0 is the worker's own number.
	for _, limit := range []struct {
		name string
		zero bool
	}{{"maxTokensPerTask", c.MaxTokensPerTask == 0}, {"modelTimeoutSeconds", c.ModelTimeout == 0}} {
		if unset, read := s.unset[limit.name]; read && !unset && limit.zero {
			problems = append(problems, fmt.Errorf("%s is 0; set 1 or more, or leave it out", limit.name))
		}
	}
	if n := environmentSize(s.Worker) - environmentSize(config.Worker{}); n > mostEnvironment {
		problems = append(problems, fmt.Errorf("what the worker asks, searches and takes from topics needs %d bytes; "+
			"set fewer allowedTopics or shorter names: Lambda has 4 KB for all of a function's environment, 3,000 for these", n))
	}
	return problems
}

// What is granted by its name has to be one name: a wildcard would grant all of them, and what is left out is not granted.
// Source: Amazon Bedrock API Reference, "Converse" and "Retrieve"; AWS Secrets Manager User Guide, "Finding a secret from a
// partial ARN"; AWS Systems Manager API Reference, "PutParameter"; Amazon S3 User Guide, "Bucket naming rules".
var (
	modelID         = regexp.MustCompile(`^[A-Za-z0-9.:/_-]+$`)
	knowledgeBaseID = regexp.MustCompile(`^[A-Za-z0-9]{10}$`)
	secretARN       = regexp.MustCompile(`^arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+-[A-Za-z0-9]{6}$`)
	parameterName   = regexp.MustCompile(`^/?[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	bucketAndPrefix = regexp.MustCompile(`^[A-Za-z0-9._-]{3,255}(/[^*?]*)?$`) // as old ones may be named
)

// mostEnvironment leaves room for the variables that every stack has.
// Source: AWS Lambda Developer Guide, "Lambda quotas".
const mostEnvironment = 3000

func environmentSize(c config.Worker) (bytes int) {
	for name, value := range config.Variables(c) {
		bytes += len(name) + len(value)
	}
	return bytes
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

// acceptFrom lets SNS topics send to a queue of the same type, so that they can be subscribed to it. They share a statement,
// since a queue's policy has room for no more than ten conditions.
// Source: Amazon SQS Developer Guide, "Amazon SQS policy quotas".
func (q *TaskQueue) acceptFrom(topics []string) {
	own := slices.DeleteFunc(slices.Clone(topics), func(topic string) bool {
		return strings.HasSuffix(topic, ".fifo") != q.TaskQueue.Queue.FIFO
	})
	if len(own) == 0 {
		return
	}
	q.Queue.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("sns.amazonaws.com"), nil)},
		Actions:    jsii.Strings("sqs:SendMessage"),
		Resources:  &[]*string{q.Queue.QueueArn()},
		Conditions: &map[string]any{"ArnEquals": map[string]any{"aws:SourceArn": own}},
	}))
}
