package cloudformation

import (
	"encoding/xml"
	"net/http"
	"net/url"
	"time"

	"agentworker/internal/emulator/awsquery"
)

const (
	namespace = "http://cloudformation.amazonaws.com/doc/2010-05-15/"
	// Version of the API; a form that has it is for CloudFormation.
	Version = "2010-05-15"
)

func (s *Server) service() awsquery.Service {
	return awsquery.Service{
		Namespace: namespace, Version: Version,
		Actions: map[string]awsquery.Action{
			"DescribeStacks": s.callDescribeStacks, "ListStackResources": s.callListStackResources,
		},
		Served: "DescribeStacks and ListStackResources",
	}
}

type outputView struct {
	Key         string `xml:"OutputKey"`
	Value       string `xml:"OutputValue"`
	Description string `xml:"Description,omitempty"`
}

type stackView struct {
	ID              string       `xml:"StackId"`
	Name            string       `xml:"StackName"`
	Description     string       `xml:"Description,omitempty"`
	CreatedAt       string       `xml:"CreationTime"`
	Status          string       `xml:"StackStatus"`
	DisableRollback bool         `xml:"DisableRollback"`
	Outputs         []outputView `xml:"Outputs>member"`
	Tags            []Tag        `xml:"Tags>member"`
}

func (s *Server) callDescribeStacks(form url.Values, meta awsquery.Metadata) (any, error) {
	name := form.Get("StackName")
	stacks := s.find(name)
	if name != "" && len(stacks) == 0 {
		return nil, absent("Stack with id %s does not exist", name)
	}
	views := make([]stackView, 0, len(stacks))
	for _, stack := range stacks {
		v := stackView{
			ID: s.StackID(stack.Name), Name: stack.Name, Description: stack.Description,
			CreatedAt: moment(stack.CreatedAt), Status: stack.Status, Tags: stack.Tags,
		}
		for _, o := range stack.Outputs {
			v.Outputs = append(v.Outputs, outputView(o))
		}
		views = append(views, v)
	}
	return struct {
		XMLName   xml.Name          `xml:"DescribeStacksResponse"`
		Namespace string            `xml:"xmlns,attr"`
		Stacks    []stackView       `xml:"DescribeStacksResult>Stacks>member"`
		Metadata  awsquery.Metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, Stacks: views, Metadata: meta}, nil
}

type resourceView struct {
	LogicalID  string `xml:"LogicalResourceId"`
	PhysicalID string `xml:"PhysicalResourceId"`
	Type       string `xml:"ResourceType"`
	UpdatedAt  string `xml:"LastUpdatedTimestamp"`
	Status     string `xml:"ResourceStatus"`
}

func (s *Server) callListStackResources(form url.Values, meta awsquery.Metadata) (any, error) {
	name := form.Get("StackName")
	if name == "" {
		return nil, absent("1 validation error detected: Value at 'stackName' failed to satisfy constraint: Member must not be null")
	}
	stacks := s.find(name)
	if len(stacks) == 0 {
		return nil, absent("Stack with id %s does not exist", name)
	}
	var views []resourceView
	for _, r := range stacks[0].Resources {
		views = append(views, resourceView{r.LogicalID, r.PhysicalID, r.Type, moment(stacks[0].CreatedAt), stacks[0].Status})
	}
	return struct {
		XMLName   xml.Name          `xml:"ListStackResourcesResponse"`
		Namespace string            `xml:"xmlns,attr"`
		Resources []resourceView    `xml:"ListStackResourcesResult>StackResourceSummaries>member"`
		Metadata  awsquery.Metadata `xml:"ResponseMetadata"`
	}{Namespace: namespace, Resources: views, Metadata: meta}, nil
}

func absent(format string, args ...any) error {
	return awsquery.Sender(http.StatusBadRequest, "ValidationError", format, args...)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
