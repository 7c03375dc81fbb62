package main_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
	"github.com/google/go-cmp/cmp"
)

// accepted are findings of cdk-nag that are left, each on one resource, with the reason.
var accepted = []struct{ resource, finding, reason string }{
	{"/agentworker-dev/Submit/Role/DefaultPolicy/Resource", "AwsSolutions-IAM5[Resource::*]", traces},
	{"/agentworker-dev/Worker/Role/DefaultPolicy/Resource", "AwsSolutions-IAM5[Resource::*]", traces},
	{"/agentworker-dev/DLQAlarm/Role/DefaultPolicy/Resource", "AwsSolutions-IAM5[Resource::*]", traces},
}

const traces = "X-Ray's two actions know no resources: AWS Service Authorization Reference, \"Actions, resources, and condition keys for AWS X-Ray\""

// AWS's own rules for a well-made stack: each finding is mended or accepted above, and none is accepted that is not there.
func TestNag(t *testing.T) {
	for name, more := range map[string]map[string]any{"iam": {}, "jwt": {"auth": "jwt", "jwtIssuer": "https://issuer.example.com", "jwtAudience": "me"}} {
		t.Run(name, func(t *testing.T) {
			context := map[string]any{"@aws-cdk/core:failSynthOnValidationErrors": false}
			for k, v := range more {
				context[k] = v
			}
			app, stack, _ := stackOf(t, context)
			awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Verbose: jsii.Bool(true)}), nil)
			var got []string
			annotations := assertions.Annotations_FromStack(stack.CDK)
			pattern := assertions.Match_StringLikeRegexp(jsii.String("(AwsSolutions|CdkNag).*"))
			rule := regexp.MustCompile(`^[A-Za-z]+-[A-Z0-9]+(\[[^\]]*\])?`)
			found := slices.Concat(*annotations.FindError(jsii.String("*"), pattern), *annotations.FindWarning(jsii.String("*"), pattern))
			for _, m := range found {
				got = append(got, *m.Id+" "+rule.FindString(fmt.Sprint(m.Entry.Data))) //nolint:staticcheck // SA1019: the type's new package does not exist in Go
			}
			var want []string
			for _, a := range accepted {
				if a.reason == "" {
					t.Errorf("%s of %s is accepted without a reason", a.finding, a.resource)
				}
				want = append(want, a.resource+" "+a.finding)
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-accepted +found):\n%s", diff)
			}
		})
	}
}
