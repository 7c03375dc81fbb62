package main

import (
	"encoding/json"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2integrations"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"agentworker/internal/config"
	"agentworker/internal/topology"
)

// SubmitProps describes a [Submit].
type SubmitProps struct {
	Settings       Settings
	Table          awsdynamodb.ITable
	Tasks, Ordered *TaskQueue
}

// Submit is the function behind the HTTP API.
type Submit struct {
	*Function
	API awsapigatewayv2.HttpApi
}

// NewSubmit makes the function and the API in front of it.
func NewSubmit(scope constructs.Construct, id string, props SubmitProps) *Submit {
	f := NewFunction(scope, id, FunctionProps{
		Settings: props.Settings, Function: props.Settings.Topology.Submit, Description: "Answers the HTTP API and queues tasks",
		Environment: config.Variables(config.Submit{
			Table:           *props.Table.TableName(),
			QueueURL:        *props.Tasks.Queue.QueueUrl(),
			OrderedQueueURL: *props.Ordered.Queue.QueueUrl(),
			RecordRetention: props.Settings.Topology.RecordRetention,
		}),
	})
	access := topology.SubmitAccess()
	f.Allow(props.Table.TableArn(), access.Table...)
	f.Allow(props.Tasks.Queue.QueueArn(), access.Queues...)
	f.Allow(props.Ordered.Queue.QueueArn(), access.Queues...)
	return &Submit{Function: f, API: newAPI(f, props.Settings)}
}

func newAPI(f *Function, s Settings) awsapigatewayv2.HttpApi {
	api := awsapigatewayv2.NewHttpApi(f.scope, jsii.String("Api"), &awsapigatewayv2.HttpApiProps{
		ApiName:            awscdk.Aws_STACK_NAME(),
		CreateDefaultStage: jsii.Bool(false),
		CorsPreflight:      cors(s),
		DefaultAuthorizer:  authorizer(s.Auth),
	})
	pin(api, "Api") // its id is in the address that clients know
	integration := awsapigatewayv2integrations.NewHttpLambdaIntegration(jsii.String("Submit"), f.Lambda,
		&awsapigatewayv2integrations.HttpLambdaIntegrationProps{
			PayloadFormatVersion:   awsapigatewayv2.PayloadFormatVersion_VERSION_2_0(),
			ScopePermissionToRoute: jsii.Bool(false),
		})
	for _, route := range topology.Routes() {
		method, path, _ := strings.Cut(route, " ")
		api.AddRoutes(&awsapigatewayv2.AddRoutesOptions{
			Path: &path, Methods: &[]awsapigatewayv2.HttpMethod{awsapigatewayv2.HttpMethod(method)}, Integration: integration,
		})
	}
	// API Gateway adds a log group to a policy of the account, which has room for a few dozen and keeps those that are gone; all
	// below /aws/vendedlogs/ share one entry.
	// Source: Amazon CloudWatch Logs User Guide, "Enable logging from AWS services".
	logs := newLogGroup(f.scope, "AccessLogs", jsii.String("/aws/vendedlogs/"+s.StackName()+"-api-"+uniquePart()), s.LogRetentionDays)
	awsapigatewayv2.NewHttpStage(api, jsii.String("Stage"), &awsapigatewayv2.HttpStageProps{
		HttpApi:                api,
		StageName:              jsii.String("$default"),
		AutoDeploy:             jsii.Bool(true),
		DetailedMetricsEnabled: jsii.Bool(true),
		Throttle: &awsapigatewayv2.ThrottleSettings{
			RateLimit: jsii.Number(s.RatePerSecond), BurstLimit: jsii.Number(s.Burst),
		},
		AccessLogSettings: &accessLog{logs},
	})
	return api
}

// authorizer is nil when everybody may call.
func authorizer(a Auth) awsapigatewayv2.IHttpRouteAuthorizer {
	switch a.Kind {
	case AuthIAM:
		return awsapigatewayv2authorizers.NewHttpIamAuthorizer()
	case AuthJWT:
		return awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("Jwt"), &a.Issuer,
			&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: jsii.Strings(a.Audience...)})
	}
	return nil
}

func cors(s Settings) *awsapigatewayv2.CorsPreflightOptions {
	if len(s.CORSOrigins) == 0 {
		return nil
	}
	headers := []string{"authorization", "content-type", "idempotency-key"}
	if s.Auth.Kind == AuthIAM { // what a signature comes with
		headers = append(headers, "x-amz-content-sha256", "x-amz-date", "x-amz-security-token")
	}
	return &awsapigatewayv2.CorsPreflightOptions{
		AllowOrigins: jsii.Strings(s.CORSOrigins...),
		AllowMethods: &[]awsapigatewayv2.CorsHttpMethod{awsapigatewayv2.CorsHttpMethod_GET, awsapigatewayv2.CorsHttpMethod_POST},
		AllowHeaders: jsii.Strings(headers...),
		// What a page has to read of an answer.
		ExposeHeaders: jsii.Strings("location", "retry-after"),
		MaxAge:        awscdk.Duration_Hours(jsii.Number(1)),
	}
}

// accessLog has one JSON line per request written. It names the caller, and holds nothing of path, query or body that
// a user has filled in.
type accessLog struct{ logs awslogs.LogGroup }

// Destination is the log group.
func (a *accessLog) Destination() awsapigatewayv2.IAccessLogDestination {
	return awsapigatewayv2.NewLogGroupLogDestination(a.logs)
}

// Format has API Gateway's variables for its values.
// Source: Amazon API Gateway Developer Guide, "Customize HTTP API access logs".
func (a *accessLog) Format() awsapigateway.AccessLogFormat {
	line, err := json.Marshal(struct {
		RequestID        string `json:"requestId"`
		Time             string `json:"time"`
		Route            string `json:"route"`
		Status           string `json:"status"`
		Bytes            string `json:"bytes"`
		LatencyMS        string `json:"latencyMs"`
		IntegrationMS    string `json:"integrationMs"`
		IntegrationError string `json:"integrationError"`
		Error            string `json:"error"`
		IP               string `json:"ip"`
		Caller           string `json:"caller"`
		Subject          string `json:"subject"`
	}{
		"$context.requestId", "$context.requestTime", "$context.routeKey", "$context.status", "$context.responseLength",
		"$context.responseLatency", "$context.integrationLatency", "$context.integrationErrorMessage", "$context.error.message",
		"$context.identity.sourceIp", "$context.identity.userArn", "$context.authorizer.claims.sub",
	})
	if err != nil {
		panic(err) // strings only
	}
	return awsapigateway.AccessLogFormat_Custom(jsii.String(string(line)))
}
