package doctor

import "time"

// State is what was seen of a stack. A pointer that is nil, or a Read that is false, is something that could not be read
// or is not there; NotMade or Missing says which.
type State struct {
	Stack               string
	TableName, TopicARN string // as the stack's outputs have them
	// Local is the chain on this machine.
	Local bool
	// Plain says that the stack is spoken to without TLS, as emulators are.
	Plain bool

	Tasks, Ordered           Pair
	Worker, Submit, DLQAlarm *Function
	Account                  *Limits
	Alarms                   []Alarm
	AlarmsRead               bool
	Rule                     *Rule
	Table                    *Table
	Topic                    *Topic

	// Missing are resources that the stack is said to have and that are not there.
	Missing []Resource
	NotMade []NotMade
}

// Resource is one that CloudFormation tells of.
type Resource struct{ Type, Name string }

// Pair is a queue with its dead-letter queue and the mappings that read it.
type Pair struct {
	Queue, DeadLetter *Queue
	// Mappings are all that there are, also those of other functions; nil when they could not be read.
	Mappings []EventSource
	// MappingsRead says that Mappings is all of them.
	MappingsRead bool
}

// Queue is one queue.
type Queue struct {
	Name, URL, ARN                 string
	FIFO                           bool
	Visibility, Retention, Wait    time.Duration
	Messages                       int // visible, waiting and in flight
	Redrive                        *RedrivePolicy
	Allow                          *RedriveAllowPolicy
	ManagedEncryption, KeyEncrypts bool
	Policy                         Policy
	// Age is that of the oldest message; nil: not known. It is not read for dead-letter queues.
	Age *time.Duration
}

// RedrivePolicy of a queue.
type RedrivePolicy struct {
	TargetARN       string
	MaxReceiveCount int
}

// RedriveAllowPolicy of a dead-letter queue.
type RedriveAllowPolicy struct {
	Permission string // allowAll, denyAll or byQueue
	Sources    []string
}

// EventSource is an event source mapping.
type EventSource struct {
	UUID, FunctionARN, State string
	BatchSize                int
	Window                   time.Duration
	MaximumConcurrency       int // 0: none set
	MinimumPollers           int
	MaximumPollers           int // 0: not provisioned
	ReportFailures           bool
	Filters                  bool
}

// Function is a Lambda function.
type Function struct {
	Name, ARN, RoleARN         string
	Runtime                    string
	State, Reason, LastUpdate  string
	Timeout                    time.Duration
	MemoryMiB                  int
	Environment                map[string]string
	Undecrypted                string // the code of why the environment could not be decrypted; "": it could
	EnvironmentHidden          bool   // the operator may not decrypt it
	Reserved                   *int   // nil: no reservation
	Policy                     Policy
	PolicyRead                 bool
	Denied                     []string // "action on resource" that the role does not allow
	RoleChecked, ReservedKnown bool
}

// Limits of the account in this region.
type Limits struct{ Concurrent, Unreserved int }

// Alarm of CloudWatch.
type Alarm struct {
	Name, ARN      string
	Metric         string
	QueueName      string // of the dimension; "" when there is none
	Actions        []string
	ActionsEnabled bool
	State, Reason  string
	Since          time.Time
	Period         time.Duration
}

// Rule of EventBridge that has dlqalarm look.
type Rule struct {
	Name, ARN, Expression string
	Enabled               bool
	Targets               []string // nil: not read
	TargetsRead           bool
}

// Table of DynamoDB.
type Table struct {
	Name, Status string
	Protected    bool
	TTLRead      bool
	TTL          string // the attribute; "" when off
	Recovery     *bool  // point-in-time recovery; nil: not read
}

// Topic of SNS.
type Topic struct {
	ARN           string
	Key           string
	Policy        Policy
	Subscriptions int // confirmed
}
