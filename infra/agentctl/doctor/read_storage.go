package doctor

import (
	"context"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
)

func (r *reader) readTable(ctx context.Context) error {
	name := r.deployment.Table
	out, err := r.dynamodb.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if ok, err := r.judge(err, "dynamodb:DescribeTable", name, resource{kind: tableType, physicalID: name}); !ok || out.Table == nil {
		return err
	}
	t := &Table{Name: name, Status: string(out.Table.TableStatus), Protected: aws.ToBool(out.Table.DeletionProtectionEnabled)}
	r.state.Table = t

	ttl, err := r.dynamodb.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &name})
	ok, err := r.judge(err, "dynamodb:DescribeTimeToLive", name, resource{})
	if err != nil {
		return err
	}
	if t.TTLRead = ok; ok && ttl.TimeToLiveDescription != nil {
		if s := ttl.TimeToLiveDescription.TimeToLiveStatus; s == types.TimeToLiveStatusEnabled || s == types.TimeToLiveStatusEnabling {
			t.TTL = aws.ToString(ttl.TimeToLiveDescription.AttributeName)
		}
	}
	backups, err := r.dynamodb.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: &name})
	if ok, err := r.judge(err, "dynamodb:DescribeContinuousBackups", name, resource{}); !ok {
		return err
	}
	if d := backups.ContinuousBackupsDescription; d != nil {
		t.Recovery = aws.Bool(d.PointInTimeRecoveryDescription != nil &&
			d.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled)
	}
	return nil
}

func (r *reader) readTopic(ctx context.Context) error {
	arn := r.deployment.TopicARN
	out, err := r.sns.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn})
	if ok, err := r.judge(err, "sns:GetTopicAttributes", arn, resource{kind: topicType, physicalID: arn}); !ok {
		return err
	}
	t := &Topic{ARN: arn, Key: out.Attributes["KmsMasterKeyId"]}
	if t.Policy, err = ParsePolicy(out.Attributes["Policy"]); err != nil {
		return fmt.Errorf("policy of %s: %w", arn, err)
	}
	if t.Subscriptions, err = strconv.Atoi(out.Attributes["SubscriptionsConfirmed"]); err != nil {
		return fmt.Errorf("subscriptions of %s: %w", arn, err)
	}
	r.state.Topic = t
	return nil
}
