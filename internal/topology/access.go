package topology

// Access is what a function's role must allow, by what it is on: IAM actions, each on exactly those resources.
type Access struct {
	Table       []string
	Queues      []string // on both queues
	DeadLetters []string // on both dead-letter queues
	Topic       []string
}

// WorkerAccess is what the worker and its mappings do. What a model or a retriever asks for comes on top.
//
// A transaction needs the actions of its parts: there is none of its own. Of the queues' actions the first three are the
// mappings', which act in the function's name; the fourth is the worker's own.
// Source: Amazon DynamoDB Developer Guide, "Using IAM with DynamoDB transactions"; AWS Lambda Developer Guide, "Using
// Lambda with Amazon SQS".
func WorkerAccess() Access {
	return Access{
		Table:  []string{"dynamodb:Query", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
		Queues: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ChangeMessageVisibility"},
	}
}

// SubmitAccess is what submit does.
func SubmitAccess() Access {
	return Access{
		Table:  []string{"dynamodb:Query", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
		Queues: []string{"sqs:SendMessage"},
	}
}

// DLQAlarmAccess is what dlqalarm does. It cannot delete what it looks at.
func DLQAlarmAccess() Access {
	return Access{
		Table:       []string{"dynamodb:Query", "dynamodb:Scan", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
		Queues:      []string{"sqs:GetQueueAttributes"},
		DeadLetters: []string{"sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"},
		Topic:       []string{"sns:Publish"},
	}
}
