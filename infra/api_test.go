package main_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	infra "agentworker/infra"
	"agentworker/internal/topology"
)

// routes are the deployed routes with their authorization.
func routes(t *testing.T, template infra.Template) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, id := range ofType(template, "AWS::ApiGatewayV2::Route") {
		p := template.Resources[id].Properties
		got[p["RouteKey"].(string)] = p["AuthorizationType"].(string)
	}
	return got
}

func TestEveryRouteIsAuthorized(t *testing.T) {
	tests := map[string]struct {
		context map[string]any
		want    string
	}{
		"by default": {nil, "AWS_IAM"},
		"jwt":        {map[string]any{"auth": "jwt", "jwtIssuer": "https://issuer.example.com", "jwtAudience": "a, b"}, "JWT"},
		"none":       {map[string]any{"auth": "none"}, "NONE"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			for _, route := range topology.Routes() {
				want[route] = test.want
			}
			if diff := cmp.Diff(want, routes(t, templateOf(t, test.context))); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJWTAuthorizer(t *testing.T) {
	template := templateOf(t, map[string]any{"auth": "jwt", "jwtIssuer": "https://issuer.example.com", "jwtAudience": "a, b"})
	id, a := only(t, template, "AWS::ApiGatewayV2::Authorizer", "")
	if got, want := text(t, a.Properties["JwtConfiguration"]), `{"Audience":["a","b"],"Issuer":"https://issuer.example.com"}`; got != want {
		t.Errorf("configuration: got %s, want %s", got, want)
	}
	for _, route := range ofType(template, "AWS::ApiGatewayV2::Route") {
		if got := at(template.Resources[route].Properties["AuthorizerId"], "Ref"); got != id {
			t.Errorf("%s: authorizer is %v, want %s", route, got, id)
		}
	}
}

func TestStage(t *testing.T) {
	template := byDefault(t)
	_, stage := only(t, template, "AWS::ApiGatewayV2::Stage", "")
	want := map[string]any{"DetailedMetricsEnabled": true, "ThrottlingBurstLimit": 100.0, "ThrottlingRateLimit": 50.0}
	if diff := cmp.Diff(any(want), stage.Properties["DefaultRouteSettings"]); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	logs, group := only(t, template, "AWS::Logs::LogGroup", "SubmitAccessLogs")
	// Each other name takes room in a policy of the account's, also after its stack is gone, until no API can log any more.
	if got := text(t, group.Properties["LogGroupName"]); !strings.Contains(got, `["/aws/vendedlogs/agentworker-dev-api-",{"Fn::Select"`) {
		t.Errorf("access log is called %s, want it below /aws/vendedlogs/ and another one after the stack's end", got)
	}
	if got := at(stage.Properties["AccessLogSettings"], "DestinationArn", "Fn::GetAtt").([]any)[0]; got != logs {
		t.Errorf("access log goes to %v, want %s", got, logs)
	}
	format := at(stage.Properties["AccessLogSettings"], "Format").(string)
	var line map[string]string
	if err := json.Unmarshal([]byte(format), &line); err != nil {
		t.Fatalf("a line of the access log is no JSON object: %v", err)
	}
	if line["requestId"] != "$context.requestId" {
		t.Errorf("a line lacks the request's id: %s", format)
	}
	for name, value := range line {
		// A path or a query may hold what a user has asked.
		if strings.Contains(value, "path") || strings.Contains(value, "query") {
			t.Errorf("the access log holds user's data: %s is %s", name, value)
		}
	}
}

func TestCORSIsOffUnlessAskedFor(t *testing.T) {
	if got := byDefault(t).Resources["Api"].Properties["CorsConfiguration"]; got != nil {
		t.Errorf("by default: got %s, want none", text(t, got))
	}
	api := templateOf(t, map[string]any{"corsOrigins": "https://a.example.com,http://localhost:3000"}).Resources["Api"]
	if got, want := text(t, at(api.Properties["CorsConfiguration"], "AllowOrigins")), `["https://a.example.com","http://localhost:3000"]`; got != want {
		t.Errorf("origins: got %s, want %s", got, want)
	}
	// A page signs its requests: with what a signature comes in, or no request gets past the preflight.
	signed := []any{"authorization", "content-type", "idempotency-key", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}
	if diff := cmp.Diff(any(signed), at(api.Properties["CorsConfiguration"], "AllowHeaders")); diff != "" {
		t.Errorf("headers that a signed request may have (-want +got):\n%s", diff)
	}
	if got := at(api.Properties["CorsConfiguration"], "AllowCredentials"); got != nil && got != false {
		t.Errorf("credentials: got %v, want none", got)
	}
}

// What people paste is there, and names nothing that is not.
func TestOutputs(t *testing.T) {
	template := byDefault(t)
	want := []string{
		"ApiUrl", "AskCommand", "DashboardUrl", "DeadLetterQueueUrl", "LogsCommand", "OrderedDeadLetterQueueUrl", "OrderedQueueUrl",
		"OrderedRedriveCommand", "QueueUrl", "RedriveCommand", "TableName", "TopicArn",
	}
	var got []string
	for name := range template.Outputs {
		got = append(got, name)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	for name, dead := range map[string]string{"RedriveCommand": "TasksDeadLetterQueue", "OrderedRedriveCommand": "OrderedDeadLetterQueue"} {
		if command := text(t, template.Outputs[name].Value); !strings.Contains(command, `"aws sqs start-message-move-task --source-arn ",{"Fn::GetAtt":["`+dead+`","Arn"]}`) {
			t.Errorf("%s does not redrive %s: %s", name, dead, command)
		}
	}
	if ask := text(t, templateOf(t, map[string]any{"auth": "none"}).Outputs["AskCommand"].Value); strings.Contains(ask, "sigv4") {
		t.Errorf("without authorization the command signs nevertheless: %s", ask)
	}
}
