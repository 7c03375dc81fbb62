package chaos

// Kind is one way in which things go wrong. Its value is its name in a plan.
type Kind string

// Faults on the wire between the functions and the table or the queues. One draw is made for each request.
const (
	Throttle Kind = "throttle" // the table refuses a request: ProvisionedThroughputExceededException
	Conflict Kind = "conflict" // the table refuses a write: another transaction is at the item
	Slow     Kind = "slow"     // an answer comes up to half a second late
	Lost     Kind = "lost"     // a request takes effect, its answer never arrives
	Cut      Kind = "cut"      // the connection breaks before a request arrives
	Late     Kind = "late"     // a commit arrives only after its task was claimed again, long after its sender gave up
	SQS      Kind = "sqs"      // SQS answers 500, also to the mappings
	Partial  Kind = "partial"  // SQS refuses entries of a batch call, also of the mappings'
)

// Ends of a worker process, with kill -9. One draw is made whenever a process passes the point.
const (
	Kill            Kind = "kill"              // up to 50 ms after any request to the table
	KillBeforeClaim Kind = "kill-before-claim" // when it wants to claim a task
	KillAfterClaim  Kind = "kill-after-claim"  // when the claim took effect, before its answer
	KillMidStep     Kind = "kill-mid-step"     // while a step is at work, up to 20 ms after a claim or at a step's call
	KillBeforeWrite Kind = "kill-before-write" // after a step's calls, before its checkpoint
	KillAfterWrite  Kind = "kill-after-write"  // after a checkpoint, before the function's answer
	KillSubmit      Kind = "kill-submit"       // an API process, before or after the message is on the queue
	Freeze          Kind = "freeze"            // no end: the process stops in its tracks and the function times out
)

// Faults around the function. One draw is made for each batch, delete call, and event.
const (
	Duplicate  Kind = "duplicate"   // a batch is delivered twice, one after the other or side by side
	LostDelete Kind = "lost-delete" // finished messages are not deleted, although SQS says so
	Alarm      Kind = "alarm"       // an alarm's event is delivered twice
)

// known lists the kinds with the rate that each has in "all", in the order in which they are told.
var known = []struct {
	kind Kind
	rate float64
}{
	{Throttle, 0.02},
	{Conflict, 0.05},
	{Slow, 0.05},
	{Lost, 0.02},
	{Cut, 0.02},
	{Late, 0.01},
	{SQS, 0.05},
	{Partial, 0.05},
	{Kill, 0.005},
	{KillBeforeClaim, 0.02},
	{KillAfterClaim, 0.02},
	{KillMidStep, 0.02},
	{KillBeforeWrite, 0.02},
	{KillAfterWrite, 0.02},
	{KillSubmit, 0.05},
	{Freeze, 0.002},
	{Duplicate, 0.1},
	{LostDelete, 0.05},
	{Alarm, 0.5},
}
