package doctor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
)

// alarmsPerCall is the most that DescribeAlarms takes by name.
const alarmsPerCall = 100

func (r *reader) readAlarms(ctx context.Context) error {
	r.state.AlarmsRead = len(r.resources) > 0
	var names []string
	for _, x := range r.resources {
		if x.kind == alarmType && x.physicalID != "" {
			names = append(names, x.physicalID)
		}
	}
	for chunk := range slices.Chunk(names, alarmsPerCall) {
		out, err := r.cloudwatch.DescribeAlarms(ctx, &cloudwatch.DescribeAlarmsInput{
			AlarmNames: chunk, AlarmTypes: []types.AlarmType{types.AlarmTypeMetricAlarm}, MaxRecords: aws.Int32(alarmsPerCall),
		})
		ok, err := r.judge(err, "cloudwatch:DescribeAlarms", "the alarms", resource{})
		if !ok {
			r.state.AlarmsRead = false
			return err
		}
		for _, a := range out.MetricAlarms {
			r.state.Alarms = append(r.state.Alarms, alarmOf(a))
		}
		for _, name := range chunk {
			if !slices.ContainsFunc(r.state.Alarms, func(a Alarm) bool { return a.Name == name }) {
				r.missing(alarmType, name)
			}
		}
	}
	return nil
}

func alarmOf(a types.MetricAlarm) Alarm {
	alarm := Alarm{
		Name: aws.ToString(a.AlarmName), ARN: aws.ToString(a.AlarmArn), Metric: aws.ToString(a.MetricName),
		Actions: a.AlarmActions, ActionsEnabled: aws.ToBool(a.ActionsEnabled), State: string(a.StateValue), Reason: aws.ToString(a.StateReason),
		// The other time is that of any update, such as a new reason for the same state.
		Since: aws.ToTime(cmp.Or(a.StateTransitionedTimestamp, a.StateUpdatedTimestamp)), Period: time.Duration(aws.ToInt32(a.Period)) * time.Second,
	}
	for _, d := range a.Dimensions {
		if aws.ToString(d.Name) == "QueueName" {
			alarm.QueueName = aws.ToString(d.Value)
		}
	}
	return alarm
}

func (r *reader) readRule(ctx context.Context) error {
	if len(r.resources) == 0 {
		return nil
	}
	found, ok := r.find(ruleType, "DLQAlarm")
	if !ok {
		r.missing(ruleType, "the schedule of dlqalarm")
		return nil
	}
	out, err := r.eventbridge.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: &found.physicalID})
	if ok, err := r.judge(err, "events:DescribeRule", found.physicalID, found); !ok {
		return err
	}
	r.state.Rule = &Rule{
		Name: found.physicalID, ARN: aws.ToString(out.Arn), Expression: aws.ToString(out.ScheduleExpression), Enabled: out.State == ebtypes.RuleStateEnabled,
	}
	targets, err := r.eventbridge.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{Rule: &found.physicalID})
	if ok, err := r.judge(err, "events:ListTargetsByRule", found.physicalID, resource{}); !ok {
		return err
	}
	r.state.Rule.TargetsRead = true
	for _, t := range targets.Targets {
		r.state.Rule.Targets = append(r.state.Rule.Targets, aws.ToString(t.Arn))
	}
	return nil
}
