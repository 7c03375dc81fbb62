package main

import (
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/topology"
)

// FunctionProps describes a [Function].
type FunctionProps struct {
	Settings    Settings
	Function    topology.Function
	Description string
	// Environment may hold CDK tokens.
	Environment map[string]string
}

// Function is a Lambda function with a role and a log group of its own. The role may do what [Function.Allow] says,
// write to that log group, and send traces.
type Function struct {
	scope constructs.Construct
	topology.Function
	Lambda awslambda.Function
	Role   awsiam.Role
	Logs   awslogs.LogGroup
}

// NewFunction makes a function of the binary that was built for it.
func NewFunction(scope constructs.Construct, id string, props FunctionProps) *Function {
	f := &Function{scope: constructs.NewConstruct(scope, &id), Function: props.Function}
	f.Logs = newLogGroup(f.scope, "Logs", nil, props.Settings.LogRetentionDays)
	f.Role = awsiam.NewRole(f.scope, jsii.String("Role"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description: jsii.String("What " + props.Function.Name + " may do"),
	})
	f.Logs.GrantWrite(f.Role)
	environment := map[string]*string{} // a JSON object to the CDK, in which order is nothing
	for _, variables := range []map[string]string{props.Environment, props.Function.Collector()} {
		for name, value := range variables {
			environment[name] = &value
		}
	}
	// The construct has the name by which sam local invoke finds the function.
	f.Lambda = awslambda.NewFunction(f.scope, &props.Function.Name, &awslambda.FunctionProps{
		Description:   &props.Description,
		Runtime:       awslambda.Runtime_PROVIDED_AL2023(),
		Architecture:  architecture(props.Settings.Architecture),
		Handler:       jsii.String("bootstrap"),
		Code:          awslambda.Code_FromAsset(jsii.String(filepath.Join(props.Settings.BinDir, props.Function.Name)), nil),
		Timeout:       seconds(props.Function.Timeout),
		MemorySize:    jsii.Number(props.Function.MemoryMiB),
		Environment:   &environment,
		Role:          f.Role,
		LogGroup:      f.Logs,
		LoggingFormat: awslambda.LoggingFormat_JSON,
		// Metrics are log lines too, which count as INFO: a higher level would drop them.
		ApplicationLogLevelV2: awslambda.ApplicationLogLevel_INFO,
		SystemLogLevelV2:      awslambda.SystemLogLevel_INFO,
		Tracing:               awslambda.Tracing_ACTIVE,
	})
	return f
}

// Allow grants exactly the actions on exactly the resources.
func (f *Function) Allow(resource *string, actions ...string) {
	f.Role.AddToPolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: jsii.Strings(actions...), Resources: &[]*string{resource},
	}))
}

// newLogGroup makes a log group whose name is generated when it is nil.
func newLogGroup(scope constructs.Construct, id string, name *string, days int) awslogs.LogGroup {
	return awslogs.NewLogGroup(scope, &id, &awslogs.LogGroupProps{
		LogGroupName: name, Retention: retention(days), RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
}

func architecture(name string) awslambda.Architecture {
	if name == "amd64" {
		return awslambda.Architecture_X86_64()
	}
	return awslambda.Architecture_ARM_64()
}

// retention is the CDK's name of a number of days.
func retention(days int) awslogs.RetentionDays {
	return map[int]awslogs.RetentionDays{
		1: awslogs.RetentionDays_ONE_DAY, 3: awslogs.RetentionDays_THREE_DAYS, 5: awslogs.RetentionDays_FIVE_DAYS,
		7: awslogs.RetentionDays_ONE_WEEK, 14: awslogs.RetentionDays_TWO_WEEKS, 30: awslogs.RetentionDays_ONE_MONTH,
		60: awslogs.RetentionDays_TWO_MONTHS, 90: awslogs.RetentionDays_THREE_MONTHS, 120: awslogs.RetentionDays_FOUR_MONTHS,
		150: awslogs.RetentionDays_FIVE_MONTHS, 180: awslogs.RetentionDays_SIX_MONTHS, 365: awslogs.RetentionDays_ONE_YEAR,
		400: awslogs.RetentionDays_THIRTEEN_MONTHS, 545: awslogs.RetentionDays_EIGHTEEN_MONTHS, 731: awslogs.RetentionDays_TWO_YEARS,
		1096: awslogs.RetentionDays_THREE_YEARS, 1827: awslogs.RetentionDays_FIVE_YEARS, 2192: awslogs.RetentionDays_SIX_YEARS,
		2557: awslogs.RetentionDays_SEVEN_YEARS, 2922: awslogs.RetentionDays_EIGHT_YEARS, 3288: awslogs.RetentionDays_NINE_YEARS,
		3653: awslogs.RetentionDays_TEN_YEARS,
	}[days]
}
