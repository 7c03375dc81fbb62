package topology

// The outputs by which programs find what is in a stack, deployed or local.
const (
	OutputAPIURL               = "ApiUrl"
	OutputTableName            = "TableName"
	OutputTopicARN             = "TopicArn"
	OutputQueueURL             = "QueueUrl"
	OutputOrderedQueueURL      = "OrderedQueueUrl"
	OutputDeadLetterURL        = "DeadLetterQueueUrl"
	OutputOrderedDeadLetterURL = "OrderedDeadLetterQueueUrl"
)

// LocalStage is the stage that the chain on one machine counts as.
const LocalStage = "local"

// StackName is the name of a stage's stack.
func StackName(stage string) string { return "agentworker-" + stage }
