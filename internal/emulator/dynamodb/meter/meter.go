// Package meter stands between a client and DynamoDB and counts what passes: requests, bytes written and capacity units.
// It can also make every request slower by a fixed time.
package meter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Usage is what passed.
type Usage struct {
	Requests   map[string]int // by operation, as in "UpdateItem"
	Written    int            // bytes of the bodies of requests that write
	WriteUnits float64
	ReadUnits  float64
}

// Total is the number of requests.
func (u Usage) Total() int {
	sum := 0
	for _, n := range u.Requests {
		sum += n
	}
	return sum
}

// Meter is the proxy. It is safe for concurrent use.
type Meter struct {
	backend   string
	listener  net.Listener
	server    *http.Server
	transport *http.Transport

	mu       sync.Mutex
	counting bool // a Measure is under way
	usage    Usage
	delay    time.Duration
}

// Listen opens a meter on a free port of 127.0.0.1 in front of the DynamoDB at the URL backend. ctx bounds the opening only.
func Listen(ctx context.Context, backend string) (*Meter, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the meter: %w", err)
	}
	// As many connections as there are requests at once: making new ones would be measured too.
	m := &Meter{
		backend: backend, listener: l, transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute},
	}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = m.server.Serve(l) }() // it ends when Close closes the listener
	return m, nil
}

// URL is where the meter listens.
func (m *Meter) URL() string { return "http://" + m.listener.Addr().String() }

// Close ends the meter and its connections, those in use too.
func (m *Meter) Close() error {
	err := m.server.Close()
	m.transport.CloseIdleConnections()
	return err
}

// Delay makes every request from now on take d longer; 0: none.
func (m *Meter) Delay(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay = d
}

// Measure calls do and returns what passed meanwhile. One call at a time. At other times requests pass as they come.
func (m *Meter) Measure(do func()) Usage {
	m.begin()
	do()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counting = false
	return m.usage
}

func (m *Meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counting, m.usage = true, Usage{Requests: map[string]int{}}
}

func (m *Meter) state() (counting bool, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counting, m.delay
}

// ServeHTTP hands one request on.
func (m *Meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	res, err := m.forward(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(res.status)
	_, _ = w.Write(res.body)
}

type answer struct {
	status int
	body   []byte
}

func (m *Meter) forward(r *http.Request) (answer, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return answer{}, err
	}
	counting, delay := m.state()
	if err := wait(r.Context(), delay); err != nil {
		return answer{}, err
	}
	asked := body
	if counting {
		if asked, err = askForUnits(body); err != nil {
			return answer{}, err
		}
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, m.backend, bytes.NewReader(asked))
	if err != nil {
		return answer{}, err
	}
	req.Header = r.Header.Clone()
	req.Header.Del("Content-Length")
	res, err := m.transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	if counting {
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		m.count(operation, len(body), units(got))
	}
	return answer{res.StatusCode, got}, nil
}

func wait(ctx context.Context, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Meter) count(operation string, size int, units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage.Requests[operation]++
	switch operation {
	case "Query", "GetItem", "BatchGetItem", "TransactGetItems", "Scan":
		m.usage.ReadUnits += units
	default:
		m.usage.Written += size
		m.usage.WriteUnits += units
	}
}

// askForUnits has DynamoDB say in its answer what a request has consumed.
func askForUnits(body []byte) ([]byte, error) {
	var fields map[string]jsontext.Value
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	fields["ReturnConsumedCapacity"] = jsontext.Value(`"TOTAL"`)
	return json.Marshal(fields)
}

// units adds up the capacity in an answer, which is one object or a list of them.
func units(body []byte) float64 {
	type consumed struct{ CapacityUnits float64 }
	var one struct{ ConsumedCapacity consumed }
	if json.Unmarshal(body, &one) == nil {
		return one.ConsumedCapacity.CapacityUnits
	}
	var many struct{ ConsumedCapacity []consumed }
	if json.Unmarshal(body, &many) != nil {
		return 0
	}
	sum := 0.0
	for _, c := range many.ConsumedCapacity {
		sum += c.CapacityUnits
	}
	return sum
}
