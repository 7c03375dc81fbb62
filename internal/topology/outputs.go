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
	// OutputAllowedTopics are ARNs with commas between them. A stack that allows none lacks it.
	OutputAllowedTopics = "AllowedTopics"
)

// LocalStage is the stage that the chain on one machine counts as.
const LocalStage = "local"

// StackName is the name of a stage's stack.
func StackName(stage string) string { return "agentworker-" + stage }
