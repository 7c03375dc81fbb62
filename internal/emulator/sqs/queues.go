package sqs

import (
	"encoding/base64"

	"agentworker/internal/emulator/sqs/engine"
)

type createQueueRequest struct {
	QueueName  string
	Attributes map[string]string
	Tags       map[string]string `json:"tags"`
}

type queueURLAnswer struct {
	QueueURL string `json:"QueueUrl"`
}

type queueRequest struct {
	QueueURL string `json:"QueueUrl"`
}

func (c *call) createQueue(in createQueueRequest) (queueURLAnswer, error) {
	if in.QueueName == "" {
		return queueURLAnswer{}, missing("QueueName")
	}
	if err := c.engine.CreateQueue(in.QueueName, in.Attributes, in.Tags); err != nil {
		return queueURLAnswer{}, err
	}
	return queueURLAnswer{c.queueURL(in.QueueName)}, nil
}

type getQueueURLRequest struct {
	QueueName string
	Owner     string `json:"QueueOwnerAWSAccountId"`
}

func (c *call) getQueueURL(in getQueueURLRequest) (queueURLAnswer, error) {
	if in.QueueName == "" {
		return queueURLAnswer{}, missing("QueueName")
	}
	if in.Owner != "" && in.Owner != c.account {
		return queueURLAnswer{}, refuse(engine.QueueDoesNotExist, "The specified queue does not exist.")
	}
	return queueURLAnswer{c.queueURL(in.QueueName)}, c.engine.QueueExists(in.QueueName)
}

type listQueuesRequest struct {
	Prefix     string `json:"QueueNamePrefix"`
	NextToken  string
	MaxResults *int
}

type listQueuesAnswer struct {
	QueueURLs []string `json:"QueueUrls,omitempty"`
	NextToken string   `json:",omitempty"`
}

func (c *call) listQueues(in listQueuesRequest) (listQueuesAnswer, error) {
	after, limit, err := paging(in.NextToken, in.MaxResults)
	if err != nil {
		return listQueuesAnswer{}, err
	}
	names, more, err := c.engine.ListQueues(in.Prefix, after, limit)
	return listQueuesAnswer{c.queueURLs(names), nextToken(names, more && in.MaxResults != nil)}, err
}

type listSourcesRequest struct {
	QueueURL   string `json:"QueueUrl"`
	NextToken  string
	MaxResults *int
}

type listSourcesAnswer struct {
	QueueURLs []string `json:"queueUrls"`
	NextToken string   `json:",omitempty"`
}

func (c *call) listDeadLetterSourceQueues(in listSourcesRequest) (listSourcesAnswer, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return listSourcesAnswer{}, err
	}
	after, limit, err := paging(in.NextToken, in.MaxResults)
	if err != nil {
		return listSourcesAnswer{}, err
	}
	names, more, err := c.engine.ListDeadLetterSources(name, after, limit)
	return listSourcesAnswer{c.queueURLs(names), nextToken(names, more && in.MaxResults != nil)}, err
}

// paging: up to 1,000 queues are listed, and without MaxResults there is no token to go on with.
// Source: Amazon SQS API Reference, ListQueues.
func paging(token string, limit *int) (after string, most int, err error) {
	most = 1000
	if limit != nil {
		if most = *limit; most < 1 || most > 1000 {
			return "", 0, invalidValue(most, "MaxResults", "Must be an integer between 1 and 1000.")
		}
	}
	name, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return "", 0, invalidValue(token, "NextToken", "The token is not one that this action returned.")
	}
	return string(name), most, nil
}

func nextToken(names []string, more bool) string {
	if !more {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(names[len(names)-1]))
}

type getAttributesRequest struct {
	QueueURL       string `json:"QueueUrl"`
	AttributeNames []string
}

type attributesAnswer struct {
	Attributes map[string]string `json:",omitempty"`
}

func (c *call) getQueueAttributes(in getAttributesRequest) (attributesAnswer, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return attributesAnswer{}, err
	}
	attributes, err := c.engine.Attributes(name, in.AttributeNames)
	return attributesAnswer{attributes}, err
}

type setAttributesRequest struct {
	QueueURL   string `json:"QueueUrl"`
	Attributes map[string]string
}

func (c *call) setQueueAttributes(in setAttributesRequest) (nothing, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return nothing{}, err
	}
	if in.Attributes == nil {
		return nothing{}, missing("Attributes")
	}
	return nothing{}, c.engine.SetAttributes(name, in.Attributes)
}

func (c *call) deleteQueue(in queueRequest) (nothing, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.engine.DeleteQueue(name)
}

func (c *call) purgeQueue(in queueRequest) (nothing, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.engine.PurgeQueue(name)
}

type tagRequest struct {
	QueueURL string `json:"QueueUrl"`
	Tags     map[string]string
	TagKeys  []string
}

type tagsAnswer struct {
	Tags map[string]string `json:",omitempty"`
}

func (c *call) tagQueue(in tagRequest) (nothing, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return nothing{}, err
	}
	if len(in.Tags) == 0 {
		return nothing{}, missing("Tags")
	}
	return nothing{}, c.engine.Tag(name, in.Tags, nil)
}

func (c *call) untagQueue(in tagRequest) (nothing, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return nothing{}, err
	}
	if len(in.TagKeys) == 0 {
		return nothing{}, missing("TagKeys")
	}
	return nothing{}, c.engine.Tag(name, nil, in.TagKeys)
}

func (c *call) listQueueTags(in queueRequest) (tagsAnswer, error) {
	name, err := c.queueName(in.QueueURL)
	if err != nil {
		return tagsAnswer{}, err
	}
	tags, err := c.engine.Tags(name)
	return tagsAnswer{tags}, err
}
