// Package sns is a local Amazon SNS that keeps what is published for people to read: Publish, CreateTopic, ListTopics and
// the attributes of a topic, over the AWS query protocol, as the SDKs and the CLI speak it. It delivers to no subscriber.
//
// Source: Amazon SNS API Reference, "Publish", "CreateTopic", "ListTopics", "Common Errors".
package sns

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"agentworker/internal/emulator/awsquery"
)

// DefaultKeep is how many notifications are kept when Config does not say.
const DefaultKeep = 1000

const pageSize = 100 // topics in one answer to ListTopics

// Config describes the service. The zero value is one without topics in us-east-1.
type Config struct {
	// Region and AccountID go into the topics' ARNs; empty means us-east-1 and 000000000000.
	Region, AccountID string
	// Topics are the names of those that exist from the start.
	Topics []string
	// Keep is how many of the newest notifications are kept; 0 means DefaultKeep.
	Keep int
	// OnPublish, when set, is called with each notification before Publish is answered. It may be called by several
	// goroutines at once.
	OnPublish func(Notification)
}

// Notification is one accepted message in the form in which SNS delivers it to an HTTP subscriber.
// Source: Amazon SNS Developer Guide, "HTTP/HTTPS notification JSON format".
type Notification struct {
	Type              string               `json:"Type"` // always "Notification"
	MessageID         string               `json:"MessageId"`
	TopicARN          string               `json:"TopicArn"`
	Subject           string               `json:"Subject,omitzero"`
	Message           string               `json:"Message"`
	Timestamp         time.Time            `json:"Timestamp"` // UTC, to the millisecond
	MessageAttributes map[string]Attribute `json:"MessageAttributes,omitzero"`
}

// Attribute is a message attribute; the value of a Binary one is in base64.
type Attribute struct {
	Type  string `json:"Type"` // String, String.Array, Number or Binary
	Value string `json:"Value"`
}

// Server is the service: an http.Handler for the AWS protocol. It is safe for concurrent use.
type Server struct {
	config   Config
	protocol awsquery.Service

	mu     sync.Mutex
	topics []string // ARNs, sorted
	kept   []Notification
	// attributes are those that were set, by the topic's ARN.
	attributes map[string]map[string]string
}

// New makes a service with the configured topics. It returns an error when a name is none that SNS takes.
func New(config Config) (*Server, error) {
	config.Region = cmp.Or(config.Region, "us-east-1")
	config.AccountID = cmp.Or(config.AccountID, "000000000000")
	config.Keep = cmp.Or(config.Keep, DefaultKeep)
	s := &Server{config: config, attributes: map[string]map[string]string{}}
	s.protocol = s.service()
	for _, name := range config.Topics {
		if _, err := s.CreateTopic(name); err != nil {
			return nil, fmt.Errorf("sns: topic %q: %w", name, err)
		}
	}
	return s, nil
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

// CreateTopic makes a standard topic and returns its ARN; that it exists already is fine. Names have 1 to 256 letters,
// digits, hyphens and underscores. FIFO topics are refused: they are not served here.
func (s *Server) CreateTopic(name string) (arn string, err error) {
	if !topicName.MatchString(name) {
		return "", invalid("Topic Name")
	}
	arn = s.TopicARN(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := slices.BinarySearch(s.topics, arn); !found {
		s.topics = slices.Insert(s.topics, i, arn)
	}
	return arn, nil
}

// TopicARN is the ARN that a topic of that name has, whether or not it exists.
func (s *Server) TopicARN(name string) string {
	return "arn:aws:sns:" + s.config.Region + ":" + s.config.AccountID + ":" + name
}

// Notifications are those that are kept, oldest first.
func (s *Server) Notifications() []Notification {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// NotificationsHandler serves the kept notifications as a JSON array, oldest first, to GET and HEAD.
func (s *Server) NotificationsHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.MarshalWrite(w, s.Notifications(), json.Deterministic(true), jsontext.WithIndent("  ")) // the reader is gone
	})
}

// publish keeps an accepted message and returns its id.
func (s *Server) publish(n Notification) (id string) {
	n.Type, n.MessageID, n.Timestamp = "Notification", uuid.NewString(), time.Now().UTC().Truncate(time.Millisecond)
	s.mu.Lock()
	if over := len(s.kept) + 1 - s.config.Keep; over > 0 {
		s.kept = slices.Delete(s.kept, 0, over)
	}
	s.kept = append(s.kept, n)
	s.mu.Unlock()
	if s.config.OnPublish != nil {
		s.config.OnPublish(n)
	}
	return n.MessageID
}

func (s *Server) exists(arn string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := slices.BinarySearch(s.topics, arn)
	return found
}

// page is the topics after an ARN, and the last ARN on it when there are more.
func (s *Server) page(after string) (arns []string, next string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearch(s.topics, after)
	if found {
		i++
	}
	arns = slices.Clone(s.topics[i:min(i+pageSize, len(s.topics))])
	if i+pageSize < len(s.topics) {
		next = arns[len(arns)-1]
	}
	return arns, next
}
