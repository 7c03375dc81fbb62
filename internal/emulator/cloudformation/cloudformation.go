// Package cloudformation is a local AWS CloudFormation that tells of stacks and makes none: DescribeStacks and
// ListStackResources over the AWS query protocol, as the SDKs and the CLI speak it. Whoever finds a deployed stack's
// resources by its outputs finds the local chain's in the same way.
//
// Source: AWS CloudFormation API Reference, "DescribeStacks", "ListStackResources", "Output", "StackResourceSummary".
package cloudformation

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"agentworker/internal/emulator/awsquery"
)

// The statuses that a local stack has.
const (
	CreateInProgress = "CREATE_IN_PROGRESS" // its outputs are not there yet
	CreateComplete   = "CREATE_COMPLETE"
)

// Config says where the stacks are. The zero value is us-east-1 of the account 000000000000.
type Config struct{ Region, AccountID string }

// Stack is what is told of a stack.
type Stack struct {
	Name        string
	Description string
	Status      string
	CreatedAt   time.Time
	Tags        []Tag
	Outputs     []Output
	Resources   []Resource
}

// Tag is a name and a value that a stack carries.
type Tag struct{ Key, Value string }

// Output is a value that a stack gives to whoever wants to use what is in it.
type Output struct{ Key, Value, Description string }

// Resource is one part of a stack.
type Resource struct {
	LogicalID string // its name in the template
	// PhysicalID is what CloudFormation's Ref gives of a resource of this type: a queue's URL, a topic's ARN, the name
	// of a function, a table or an alarm, the UUID of an event source mapping.
	PhysicalID string
	Type       string // such as AWS::SQS::Queue
}

// Server is the service: an http.Handler for the AWS protocol. It is safe for concurrent use.
type Server struct {
	config   Config
	protocol awsquery.Service

	mu     sync.Mutex
	stacks []Stack // by name
}

// New makes a service without stacks.
func New(config Config) *Server {
	config.Region = cmp.Or(config.Region, "us-east-1")
	config.AccountID = cmp.Or(config.AccountID, "000000000000")
	s := &Server{config: config}
	s.protocol = s.service()
	return s
}

// ServeHTTP serves one call of the query protocol.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.protocol.ServeHTTP(w, r) }

// Put adds a stack, in the place of one of the same name if there is one.
func (s *Server) Put(stack Stack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.stacks, stack.Name, func(have Stack, name string) int { return cmp.Compare(have.Name, name) })
	if found {
		s.stacks[i] = stack
		return
	}
	s.stacks = slices.Insert(s.stacks, i, stack)
}

// StackID is the ARN of a stack of that name: the same one at every start.
func (s *Server) StackID(name string) string {
	prefix := "arn:aws:cloudformation:" + s.config.Region + ":" + s.config.AccountID + ":stack/" + name + "/"
	return prefix + uuid.NewSHA1(uuid.NameSpaceURL, []byte(prefix)).String()
}

// find gives the stacks of a name or an id, or all of them for "".
func (s *Server) find(nameOrID string) []Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nameOrID == "" {
		return slices.Clone(s.stacks)
	}
	for _, stack := range s.stacks {
		if stack.Name == nameOrID || s.StackID(stack.Name) == nameOrID {
			return []Stack{stack}
		}
	}
	return nil
}
