package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"agentworker/internal/topology"
)

func (r *reader) readFunctions(ctx context.Context) error {
	if len(r.resources) == 0 {
		return nil // the reason is noted
	}
	for _, f := range []struct {
		prefix string
		into   **Function
	}{{"Worker", &r.state.Worker}, {"Submit", &r.state.Submit}, {"DLQAlarm", &r.state.DLQAlarm}} {
		found, ok := r.find(functionType, f.prefix)
		if !ok {
			r.missing(functionType, strings.ToLower(f.prefix))
			continue
		}
		var err error
		if *f.into, err = r.readFunction(ctx, found); err != nil {
			return err
		}
	}
	out, err := r.lambda.GetAccountSettings(ctx, &lambda.GetAccountSettingsInput{})
	if ok, err := r.judge(err, "lambda:GetAccountSettings", "the account's concurrency", resource{}); !ok || out.AccountLimit == nil {
		return err
	}
	r.state.Account = &Limits{int(out.AccountLimit.ConcurrentExecutions), int(aws.ToInt32(out.AccountLimit.UnreservedConcurrentExecutions))}
	return nil
}

func (r *reader) readFunction(ctx context.Context, found resource) (*Function, error) {
	name := found.physicalID
	out, err := r.lambda.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if ok, err := r.judge(err, "lambda:GetFunctionConfiguration", name, found); !ok {
		return nil, err
	}
	f := &Function{
		Name: name, ARN: aws.ToString(out.FunctionArn), RoleARN: aws.ToString(out.Role), Runtime: string(out.Runtime),
		State: string(out.State), Reason: cmp.Or(aws.ToString(out.StateReason), aws.ToString(out.LastUpdateStatusReason)), LastUpdate: string(out.LastUpdateStatus),
		Timeout: time.Duration(aws.ToInt32(out.Timeout)) * time.Second, MemoryMiB: int(aws.ToInt32(out.MemorySize)),
	}
	if out.Environment != nil {
		f.Environment = out.Environment.Variables
		if problem := out.Environment.Error; problem != nil {
			f.Undecrypted = cmp.Or(aws.ToString(problem.ErrorCode), "no code is given")
		}
	}
	// It is decrypted with the caller's permissions. Source: AWS Lambda Developer Guide, "Securing Lambda environment variables".
	if f.EnvironmentHidden = slices.Contains(deniedCodes, f.Undecrypted); f.EnvironmentHidden {
		r.notMade("the environment of "+name, "kms:Decrypt", NotPermitted)
	}
	concurrency, err := r.lambda.GetFunctionConcurrency(ctx, &lambda.GetFunctionConcurrencyInput{FunctionName: &name})
	ok, err := r.judge(err, "lambda:GetFunctionConcurrency", name, resource{})
	if err != nil {
		return nil, err
	}
	if f.ReservedKnown = ok; ok && concurrency.ReservedConcurrentExecutions != nil {
		f.Reserved = aws.Int(int(*concurrency.ReservedConcurrentExecutions))
	}
	return f, r.readPolicy(ctx, f)
}

// readPolicy asks who may invoke the function. One that nobody may invoke has no policy at all.
func (r *reader) readPolicy(ctx context.Context, f *Function) error {
	before := len(r.state.NotMade)
	out, err := r.lambda.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: &f.Name})
	ok, err := r.judge(err, "lambda:GetPolicy", f.Name, resource{})
	f.PolicyRead = err == nil && len(r.state.NotMade) == before
	if !ok {
		return err
	}
	if f.Policy, err = ParsePolicy(aws.ToString(out.Policy)); err != nil {
		return fmt.Errorf("policy of %s: %w", f.Name, err)
	}
	return nil
}

// readRoles has IAM say what the roles allow of what the functions do.
func (r *reader) readRoles(ctx context.Context) error {
	for _, f := range []struct {
		*Function
		access topology.Access
	}{
		{r.state.Worker, topology.WorkerAccess()}, {r.state.Submit, topology.SubmitAccess()}, {r.state.DLQAlarm, topology.DLQAlarmAccess()},
	} {
		if f.Function == nil {
			continue
		}
		f.RoleChecked = true
		for _, on := range r.targets(f.access) {
			ok, err := r.simulate(ctx, f.Function, on)
			if err != nil {
				return err
			}
			f.RoleChecked = f.RoleChecked && ok
		}
	}
	return nil
}

// target is what actions are on.
type target struct {
	name, arn string
	actions   []string
}

func (r *reader) targets(a topology.Access) (targets []target) {
	add := func(name, arn string, actions []string) {
		if len(actions) > 0 && arn != "" {
			targets = append(targets, target{name, arn, actions})
		}
	}
	queue := func(q *Queue, actions []string) {
		if q != nil {
			add(q.Name, q.ARN, actions)
		}
	}
	queue(r.state.Tasks.Queue, a.Queues)
	queue(r.state.Ordered.Queue, a.Queues)
	queue(r.state.Tasks.DeadLetter, a.DeadLetters)
	queue(r.state.Ordered.DeadLetter, a.DeadLetters)
	add("the topic", r.deployment.TopicARN, a.Topic)
	if q := r.state.Tasks.Queue; q != nil { // the table is where the queue is
		parts := strings.Split(q.ARN, ":")
		if len(parts) == 6 {
			add("the table", strings.Join([]string{parts[0], parts[1], "dynamodb", parts[3], parts[4], "table/" + r.deployment.Table}, ":"), a.Table)
		}
	}
	return targets
}

func (r *reader) simulate(ctx context.Context, f *Function, on target) (bool, error) {
	pages := iam.NewSimulatePrincipalPolicyPaginator(r.iam, &iam.SimulatePrincipalPolicyInput{
		PolicySourceArn: &f.RoleARN, ActionNames: on.actions, ResourceArns: []string{on.arn},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if ok, err := r.judge(err, "iam:SimulatePrincipalPolicy", "the roles' permissions", resource{kind: "AWS::IAM::Role", physicalID: f.RoleARN}); !ok {
			return false, err
		}
		for _, result := range page.EvaluationResults {
			if result.EvalDecision != types.PolicyEvaluationDecisionTypeAllowed {
				f.Denied = append(f.Denied, aws.ToString(result.EvalActionName)+" on "+on.name)
			}
		}
	}
	return true, nil
}
