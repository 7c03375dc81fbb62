package emulator

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"agentworker/internal/emulator/cloudformation"
	"agentworker/internal/topology"
)

// describe tells of the chain as CloudFormation tells of the deployed stack; outputs and resources once it is up.
func (c *Chain) describe(began time.Time, up bool) cloudformation.Stack {
	stack := cloudformation.Stack{
		Name: topology.StackName(topology.LocalStage), Description: "Work for an AI agent, on this machine",
		Status: cloudformation.CreateInProgress, CreatedAt: began,
		Tags: []cloudformation.Tag{{Key: "app", Value: "agentworker"}, {Key: "stage", Value: topology.LocalStage}},
	}
	if !up {
		return stack
	}
	stack.Status = cloudformation.CreateComplete
	output := func(key, value, description string) {
		stack.Outputs = append(stack.Outputs, cloudformation.Output{Key: key, Value: value, Description: description})
	}
	topic := c.topic.TopicARN(c.config.Stack.TopicName)
	output(topology.OutputAPIURL, c.apiURL, "The HTTP API")
	output(topology.OutputTableName, c.config.Stack.TableName, "Threads, tasks and tickets")
	output(topology.OutputTopicARN, topic, "Where dead letters are told of")
	output(topology.OutputQueueURL, c.tasks.main.url, "The queue of independent tasks")
	output(topology.OutputOrderedQueueURL, c.ordered.main.url, "The queue of ordered tasks")
	output(topology.OutputDeadLetterURL, c.tasks.dead.url, "Where independent tasks end that failed")
	output(topology.OutputOrderedDeadLetterURL, c.ordered.dead.url, "Where ordered tasks end that failed")
	if topics := c.config.AllowedTopics; len(topics) > 0 {
		output(topology.OutputAllowedTopics, strings.Join(topics, ","), "SNS topics whose notifications may hold tasks")
	}

	resource := func(logicalID, kind, physicalID string) {
		stack.Resources = append(stack.Resources, cloudformation.Resource{LogicalID: logicalID, Type: kind, PhysicalID: physicalID})
	}
	resource("Table", "AWS::DynamoDB::Table", c.config.Stack.TableName)
	resource("Topic", "AWS::SNS::Topic", topic)
	resource("Submit", "AWS::Lambda::Function", c.submit.Name())
	resource("Worker", "AWS::Lambda::Function", c.worker.Name())
	resource("DLQAlarm", "AWS::Lambda::Function", c.dlqalarm.Name())
	resource("DLQAlarmSweep", "AWS::Events::Rule", sweepRule)
	for _, part := range []struct {
		prefix string
		queue  taskQueue
	}{{"Tasks", c.tasks}, {"Ordered", c.ordered}} {
		prefix, q := part.prefix, part.queue
		resource(prefix+"Queue", "AWS::SQS::Queue", q.main.url)
		resource(prefix+"DeadLetterQueue", "AWS::SQS::Queue", q.dead.url)
		resource(prefix+"Mapping", "AWS::Lambda::EventSourceMapping", mappingUUID(q.main.arn, c.worker.ARN()))
		resource("Alarms"+prefix+"Depth", "AWS::CloudWatch::Alarm", q.DeadLetterAlarmName())
	}
	return stack
}

// mappingUUID is the id of the event source mapping between a queue and a function: the same one at every start.
func mappingUUID(queueARN, functionARN string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(queueARN+" "+functionARN)).String()
}
