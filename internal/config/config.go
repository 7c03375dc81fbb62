// Package config is what the functions read from their environment: once, at start, with every problem reported
// in one message.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Worker is the environment of the worker function.
type Worker struct {
	Table            string        `env:"TABLE_NAME,required,notEmpty"`
	QueueURL         string        `env:"QUEUE_URL,required,notEmpty"`
	OrderedQueueURL  string        `env:"ORDERED_QUEUE_URL,required,notEmpty"`
	Retries          int           `env:"RETRIES,required,notEmpty"`                    // after a plain error, 0 to 100
	MaxReceiveCount  int           `env:"MAX_RECEIVE_COUNT,required,notEmpty"`          // of the queues, 1 to 1,000
	PartialBatch     bool          `env:"REPORT_BATCH_ITEM_FAILURES,required,notEmpty"` // as set at the mappings
	RecordRetention  time.Duration `env:"RECORD_RETENTION,required,notEmpty"`           // 24h or more
	MetricsNamespace string        `env:"METRICS_NAMESPACE,required,notEmpty"`
	AllowedTopics    []string      `env:"ALLOWED_TOPICS"` // SNS topics whose notifications may hold tasks, by ARN; none: no topic

	Model            string        `env:"MODEL"`               // "offline", "bedrock:<model or inference profile>" or "openai:<model>"; "": offline
	ModelTimeout     time.Duration `env:"MODEL_TIMEOUT"`       // of one call, 1s to 15m; 0: 45s
	MaxTokensPerTask int           `env:"MAX_TOKENS_PER_TASK"` // input and output together; 0: 200,000
	Retriever        string        `env:"RETRIEVER"`           // "offline", "folder:<path>", "s3://<bucket>/<prefix>" or "kb:<id>"; "": offline
	OpenAIBaseURL    string        `env:"OPENAI_BASE_URL"`     // of any server of OpenAI's chat completions, up to and with /v1; "": OpenAI's own
	// Where the API key lies: a secret of Secrets Manager, by ARN, or a parameter of SSM, by name. With neither it is OPENAI_API_KEY,
	// for a laptop, which is read apart from this: see [Keys].
	OpenAIKeySecret    string `env:"OPENAI_API_KEY_SECRET"`
	OpenAIKeyParameter string `env:"OPENAI_API_KEY_PARAMETER"`
}

// Submit is the environment of the submit function.
type Submit struct {
	Table           string        `env:"TABLE_NAME,required,notEmpty"`
	QueueURL        string        `env:"QUEUE_URL,required,notEmpty"`
	OrderedQueueURL string        `env:"ORDERED_QUEUE_URL,required,notEmpty"`
	RecordRetention time.Duration `env:"RECORD_RETENTION,required,notEmpty"`
}

// DLQAlarm is the environment of the dlqalarm function.
type DLQAlarm struct {
	Table            string        `env:"TABLE_NAME,required,notEmpty"`
	QueueURL         string        `env:"QUEUE_URL,required,notEmpty"`
	OrderedQueueURL  string        `env:"ORDERED_QUEUE_URL,required,notEmpty"`
	DLQURL           string        `env:"DLQ_URL,required,notEmpty"`
	OrderedDLQURL    string        `env:"ORDERED_DLQ_URL,required,notEmpty"`
	TopicARN         string        `env:"TOPIC_ARN,required,notEmpty"`
	AllowedTopics    []string      `env:"ALLOWED_TOPICS"` // as the worker has it: both must read a message alike
	RecordRetention  time.Duration `env:"RECORD_RETENTION,required,notEmpty"`
	MetricsNamespace string        `env:"METRICS_NAMESPACE,required,notEmpty"`
	// The alarms on the queues' depth, which are headings in the runbook; "": the queue's name and "-depth".
	DLQAlarm        string `env:"DLQ_ALARM"`
	OrderedDLQAlarm string `env:"ORDERED_DLQ_ALARM"`
}

// Validate says what is wrong with the values beyond their form.
func (c Worker) Validate() error {
	return errors.Join(
		queueURL("QUEUE_URL", c.QueueURL),
		queueURL("ORDERED_QUEUE_URL", c.OrderedQueueURL),
		between("RETRIES", c.Retries, 0, 100),
		between("MAX_RECEIVE_COUNT", c.MaxReceiveCount, 1, 1000),
		topicARNs("ALLOWED_TOPICS", c.AllowedTopics),
		retention(c.RecordRetention),
		c.validateModel())
}

// Validate says what is wrong with the values beyond their form.
func (c Submit) Validate() error {
	return errors.Join(
		queueURL("QUEUE_URL", c.QueueURL),
		queueURL("ORDERED_QUEUE_URL", c.OrderedQueueURL),
		retention(c.RecordRetention))
}

// Validate says what is wrong with the values beyond their form.
func (c DLQAlarm) Validate() error {
	return errors.Join(
		queueURL("QUEUE_URL", c.QueueURL),
		queueURL("ORDERED_QUEUE_URL", c.OrderedQueueURL),
		queueURL("DLQ_URL", c.DLQURL),
		queueURL("ORDERED_DLQ_URL", c.OrderedDLQURL),
		topicARN("TOPIC_ARN", c.TopicARN),
		topicARNs("ALLOWED_TOPICS", c.AllowedTopics),
		retention(c.RecordRetention))
}

// Load reads a configuration from the process's environment.
func Load[C interface{ Validate() error }]() (C, error) { return LoadFrom[C](os.Environ()) }

// LoadFrom reads a configuration from KEY=VALUE pairs. Its error names every variable that is missing, malformed or
// out of range, and never a value.
func LoadFrom[C interface{ Validate() error }](environ []string) (C, error) {
	c, err := env.ParseAsWithOptions[C](env.Options{Environment: env.ToMap(environ)})
	problems := []string{}
	for _, err := range flatten(err) {
		problems = append(problems, sentence[C](err))
	}
	// What could not be read at all has no value to judge.
	for _, err := range flatten(c.Validate()) {
		name, _, _ := strings.Cut(err.Error(), " ")
		said := func(problem string) bool { return strings.HasPrefix(problem, name+" ") }
		if !slices.ContainsFunc(problems, said) {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) > 0 {
		return c, fmt.Errorf("the environment is not usable:\n  %s", strings.Join(problems, "\n  "))
	}
	return c, nil
}

func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var list interface{ Unwrap() []error }
	if errors.As(err, &list) {
		return list.Unwrap()
	}
	return []error{err}
}

// sentence says what an error in reading the variables of C means, without any value.
func sentence[C any](err error) string {
	var unset env.VarIsNotSetError
	var empty env.EmptyVarError
	var parse env.ParseError
	switch {
	case errors.As(err, &unset):
		return unset.Key + " is not set"
	case errors.As(err, &empty):
		return empty.Key + " is empty"
	case errors.As(err, &parse):
		field, _ := reflect.TypeFor[C]().FieldByName(parse.Name)
		return variable(field) + " is not " + kind(field.Type)
	}
	return err.Error()
}

func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90m or 48h"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	}
	return "a " + t.String()
}

func variable(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("env"), ",")
	return name
}

// Variables is the environment that [Load] reads c from. What need not be set and is zero is left out.
func Variables[C interface{ Validate() error }](c C) map[string]string {
	vars := map[string]string{}
	value := reflect.ValueOf(c)
	for i := range value.NumField() {
		_, options, _ := strings.Cut(value.Type().Field(i).Tag.Get("env"), ",")
		if value.Field(i).IsZero() && !strings.Contains(options, "required") {
			continue
		}
		text := fmt.Sprint(value.Field(i).Interface())
		if list, ok := value.Field(i).Interface().([]string); ok {
			text = strings.Join(list, ",")
		}
		vars[variable(value.Type().Field(i))] = text
	}
	return vars
}

func queueURL(name, value string) error {
	u, err := url.Parse(value)
	if value != "" && (err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || strings.Trim(u.Path, "/") == "") {
		return fmt.Errorf("%s is not a queue URL", name)
	}
	return nil
}

func topicARN(name, value string) error {
	parts := strings.Split(value, ":")
	if value != "" && (len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns") {
		return fmt.Errorf("%s is not the ARN of a topic", name)
	}
	return nil
}

// topicARNs wants each to name an SNS topic exactly: nothing in the list stands for several.
func topicARNs(name string, values []string) error {
	for _, v := range values {
		if topicARN(name, v) != nil || v == "" || strings.ContainsAny(v, "*? ") {
			return fmt.Errorf("%s is not a list of topic ARNs with commas between them", name)
		}
	}
	return nil
}

func between(name string, value, low, high int) error {
	if value < low || value > high {
		return fmt.Errorf("%s is %d; set %d to %d", name, value, low, high)
	}
	return nil
}

func retention(d time.Duration) error {
	if d < 24*time.Hour {
		return fmt.Errorf("RECORD_RETENTION is %v; set at least 24h", d)
	}
	return nil
}
