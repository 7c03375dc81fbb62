package chaos

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Injection is one fault that struck.
type Injection struct {
	Kind    Kind
	At      time.Time
	Process string // that it hit or whose request it hit; "": none
	Task    string // id of the task that it hit; "": none, or several
	Thread  string // of the task or of the items that a request is about; "": unknown
	What    string // was being done, such as the name of an operation
}

// Processes are those that can be hit; a *lambda.Function has them.
type Processes interface {
	Signal(id string, signal syscall.Signal) bool
}

// Injector carries a plan out. It is safe for concurrent use; all its methods may be called on nil, which injects nothing.
type Injector struct {
	plan    Plan
	watch   Watch
	stopped atomic.Bool

	mu        sync.Mutex
	drawn     map[uint64]uint64 // how often, by the hash of kind and key
	before    map[uint64]uint64 // the same of a while ago
	processes []Processes
	late      map[string]*lateWrite // by task
}

// Watch is told what happens. Its functions may be called concurrently; nil ones are not.
type Watch struct {
	// Injected is told of each fault, before its effect can be seen.
	Injected func(Injection)
	// Claimed is told of each claim that took effect, fault or not: process has begun an attempt at the task.
	Claimed func(task, process string)
}

// New makes an injector.
func New(plan Plan, watch Watch) *Injector {
	return &Injector{plan: plan, watch: watch, drawn: map[uint64]uint64{}, late: map[string]*lateWrite{}}
}

// Reach names the processes that can be hit.
func (i *Injector) Reach(processes ...Processes) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.processes = append(i.processes, processes...)
}

// Stop ends all injecting. Commits that are held up arrive before it returns.
func (i *Injector) Stop() {
	if i == nil {
		return
	}
	i.stopped.Store(true)
	i.mu.Lock()
	held := slices.Collect(maps.Keys(i.late))
	i.mu.Unlock()
	for _, task := range held {
		i.letLateOneIn(task)
	}
}

// draw decides whether a fault strikes at this occurrence of key. dice is for what else is to be decided about it.
func (i *Injector) draw(kind Kind, key string) (dice *rand.Rand, strikes bool) {
	rate := i.plan.rates[kind]
	if rate == 0 || i.stopped.Load() {
		return nil, false
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(kind) + " " + key)) // cannot fail
	name := h.Sum64()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, i.occurrence(name)))
	dice = rand.New(rand.NewPCG(i.plan.Seed, h.Sum64()))
	return dice, dice.Float64() < rate
}

// mostCounts bounds what is remembered: a chain may run for days.
const mostCounts = 1 << 17

// occurrence counts how often a name has been asked for, from 0. It forgets those that have not been asked for in a long while.
func (i *Injector) occurrence(name uint64) uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.drawn) >= mostCounts {
		i.before, i.drawn = i.drawn, map[uint64]uint64{}
	}
	n, known := i.drawn[name]
	if !known {
		n = i.before[name]
	}
	i.drawn[name] = n + 1
	return n
}

// Strike draws a fault of the caller's own making and reports it. key says what is being done, the same at each
// run; hit is what goes into the report. [KillMidStep] and [Freeze] also hit the process.
func (i *Injector) Strike(kind Kind, key string, hit Injection) bool {
	if i == nil {
		return false
	}
	_, strikes := i.draw(kind, key)
	switch {
	case !strikes:
	case kind == KillMidStep:
		i.signal(syscall.SIGKILL, kind, hit)
	case kind == Freeze:
		i.signal(syscall.SIGSTOP, kind, hit)
	default:
		i.report(kind, hit)
	}
	return strikes
}

func (i *Injector) report(kind Kind, hit Injection) {
	if i.watch.Injected != nil {
		hit.Kind, hit.At = kind, time.Now()
		i.watch.Injected(hit)
	}
}

// signal hits a process. It is reported before, so that nobody sees the effect without knowing its cause.
func (i *Injector) signal(signal syscall.Signal, kind Kind, hit Injection) {
	i.report(kind, hit)
	i.mu.Lock()
	all := i.processes
	i.mu.Unlock()
	for _, p := range all {
		if p.Signal(hit.Process, signal) {
			return
		}
	}
}

// signalLater hits a process after a moment, if nobody has stopped the injector until then.
func (i *Injector) signalLater(after time.Duration, signal syscall.Signal, kind Kind, hit Injection) {
	time.AfterFunc(after, func() {
		if !i.stopped.Load() {
			i.signal(signal, kind, hit)
		}
	})
}
