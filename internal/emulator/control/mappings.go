package control

import (
	"net/http"
	"slices"
	"time"

	"agentworker/internal/emulator/mapping"
)

const (
	mappingsPath   = "/2015-03-31/event-source-mappings"
	reportFailures = "ReportBatchItemFailures"
)

// mappingView is a mapping as Lambda tells of it. Source: AWS Lambda API Reference, "EventSourceMappingConfiguration".
type mappingView struct {
	UUID                           string
	EventSourceARN                 string `json:"EventSourceArn"`
	FunctionARN                    string `json:"FunctionArn"`
	State                          string
	StateTransitionReason          string
	BatchSize                      int
	MaximumBatchingWindowInSeconds int
	ScalingConfig                  *scaling `json:",omitzero"`
	FunctionResponseTypes          []string
	LastModified                   float64 // seconds since 1970
}

type scaling struct {
	MaximumConcurrency int `json:",omitzero"`
}

func viewOf(s mapping.State) mappingView {
	v := mappingView{
		UUID: s.UUID, EventSourceARN: s.Config.QueueARN, FunctionARN: s.FunctionARN, State: "Enabled", StateTransitionReason: "USER_INITIATED",
		BatchSize: s.Config.BatchSize, MaximumBatchingWindowInSeconds: int(s.Config.BatchingWindow / time.Second),
		FunctionResponseTypes: []string{}, LastModified: float64(s.Modified.Unix()),
	}
	if v.BatchSize == 0 {
		v.BatchSize = 10
	}
	switch {
	case s.Pending && !s.Enabled:
		v.State = "Disabling"
	case s.Pending:
		v.State = "Updating"
	case !s.Enabled:
		v.State = "Disabled"
	}
	if s.Config.MaximumConcurrency > 0 {
		v.ScalingConfig = &scaling{s.Config.MaximumConcurrency}
	}
	if s.Config.ReportBatchItemFailures {
		v.FunctionResponseTypes = []string{reportFailures}
	}
	return v
}

// listMappings answers with all of them at once: there are few.
func (p *Plane) listMappings(r *http.Request) (any, *fault) {
	queue, function := r.URL.Query().Get("EventSourceArn"), r.URL.Query().Get("FunctionName")
	var target string
	if function != "" {
		f, bad := p.function(function)
		if bad != nil {
			return nil, bad
		}
		target = f.ARN()
	}
	views := []mappingView{}
	for _, m := range p.config.Mappings {
		v := viewOf(m.State())
		if (queue == "" || queue == v.EventSourceARN) && (target == "" || target == v.FunctionARN) {
			views = append(views, v)
		}
	}
	return struct{ EventSourceMappings []mappingView }{views}, nil
}

func (p *Plane) mapping(uuid string) (*mapping.Managed, *fault) {
	i := slices.IndexFunc(p.config.Mappings, func(m *mapping.Managed) bool { return m.State().UUID == uuid })
	if i < 0 {
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException", "The resource you requested does not exist.")
	}
	return p.config.Mappings[i], nil
}

func (p *Plane) getMapping(r *http.Request) (any, *fault) {
	m, bad := p.mapping(r.PathValue("uuid"))
	if bad != nil {
		return nil, bad
	}
	return viewOf(m.State()), nil
}

// updateMapping changes what the request names.
// Source: AWS Lambda API Reference, "UpdateEventSourceMapping".
func (p *Plane) updateMapping(r *http.Request) (any, *fault) {
	m, bad := p.mapping(r.PathValue("uuid"))
	if bad != nil {
		return nil, bad
	}
	var in struct {
		Enabled                        *bool
		BatchSize                      *int
		MaximumBatchingWindowInSeconds *int
		FunctionResponseTypes          *[]string
		ScalingConfig                  *scaling
	}
	if bad := read(r, &in); bad != nil {
		return nil, bad
	}
	err := m.Update(r.Context(), func(c *mapping.Config, enabled *bool) error {
		if in.Enabled != nil {
			*enabled = *in.Enabled
		}
		if in.BatchSize != nil {
			c.BatchSize = *in.BatchSize
		}
		if in.MaximumBatchingWindowInSeconds != nil {
			c.BatchingWindow = time.Duration(*in.MaximumBatchingWindowInSeconds) * time.Second
		}
		if in.FunctionResponseTypes != nil {
			c.ReportBatchItemFailures = slices.Contains(*in.FunctionResponseTypes, reportFailures)
		}
		if in.ScalingConfig != nil {
			c.MaximumConcurrency = in.ScalingConfig.MaximumConcurrency
		}
		return nil
	})
	if err != nil {
		return nil, invalid(err.Error())
	}
	return viewOf(m.State()), nil
}
