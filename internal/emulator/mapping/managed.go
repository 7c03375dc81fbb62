package mapping

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Managed is a mapping whose settings can be changed while it runs, as UpdateEventSourceMapping changes them. Its methods
// may be called at any time, by any goroutine; Run once.
type Managed struct {
	uuid, functionARN string

	mu       sync.Mutex
	config   Config
	enabled  bool
	modified time.Time
	version  int                // of the settings: how often they were changed
	applied  int                // the version that runs
	restart  context.CancelFunc // ends the running mapping, so that Run begins one with the new settings; nil: none runs
}

// State is what a mapping is set to.
type State struct {
	UUID        string
	FunctionARN string
	Config      Config // as it was given: what is zero has its default
	Enabled     bool
	Modified    time.Time // of the last change
	// Pending says that the last change has yet to come into effect: what was under way before it has not ended.
	Pending bool
}

// NewManaged makes an enabled mapping; the error lists every problem of the configuration.
func NewManaged(uuid, functionARN string, config Config) (*Managed, error) {
	if _, err := New(config); err != nil {
		return nil, err
	}
	return &Managed{uuid: uuid, functionARN: functionARN, config: config, enabled: true, modified: time.Now()}, nil
}

// State is the mapping's present settings.
func (m *Managed) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return State{UUID: m.uuid, FunctionARN: m.functionARN, Config: m.config, Enabled: m.enabled, Modified: m.modified, Pending: m.version != m.applied}
}

// Update changes the settings and, when the mapping runs, has it go on with the new ones: what it works on ends first.
// The error is that of [New] or of change, or what [Mapping.Run] would fail with at its start, and then nothing has
// changed: a queue that has been changed meanwhile, or is gone, does not end what runs.
func (m *Managed) Update(ctx context.Context, change func(config *Config, enabled *bool) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	config, enabled := m.config, m.enabled
	if err := change(&config, &enabled); err != nil {
		return err
	}
	next, err := New(config)
	if err != nil {
		return err
	}
	if enabled {
		if err := next.check(ctx); err != nil {
			return err
		}
	}
	m.config, m.enabled, m.modified = config, enabled, time.Now()
	if m.restart != nil {
		m.version++
		m.restart()
	}
	return nil
}

// Run does what [Mapping.Run] does, with the settings that the mapping has at the time, until ctx ends.
func (m *Managed) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := m.runOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runOnce runs with one set of settings: until they change or ctx ends.
func (m *Managed) runOnce(ctx context.Context) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	config, enabled := m.config, m.enabled
	m.restart, m.applied = cancel, m.version
	m.mu.Unlock()
	if !enabled {
		<-running.Done()
		return nil
	}
	mapping, err := New(config)
	if err != nil {
		return fmt.Errorf("go on with changed settings: %w", err)
	}
	return mapping.Run(running)
}
