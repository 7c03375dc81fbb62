package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// NewTable makes the table of threads, tasks and tickets. It outlives the stack.
func NewTable(scope constructs.Construct, id string) awsdynamodb.Table {
	key := func(name string) *awsdynamodb.Attribute {
		return &awsdynamodb.Attribute{Name: &name, Type: awsdynamodb.AttributeType_STRING}
	}
	table := awsdynamodb.NewTable(scope, &id, &awsdynamodb.TableProps{
		PartitionKey:        key("pk"),
		SortKey:             key("sk"),
		BillingMode:         awsdynamodb.BillingMode_PAY_PER_REQUEST,
		TimeToLiveAttribute: jsii.String("expires_at"),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
		DeletionProtection: jsii.Bool(true),
		RemovalPolicy:      awscdk.RemovalPolicy_RETAIN,
	})
	pin(table, "Table")
	return table
}

// pin fixes the logical id of a construct's resource. CloudFormation replaces a resource whose logical id changes, which
// for a table or a queue means an empty one: its id must not follow the construct when that is moved or renamed.
func pin(c constructs.IConstruct, logicalID string) {
	resource, ok := c.Node().DefaultChild().(awscdk.CfnResource)
	if !ok {
		panic("no resource to pin " + logicalID + " to")
	}
	resource.OverrideLogicalId(&logicalID)
}
