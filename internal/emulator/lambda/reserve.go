package lambda

import "fmt"

// Reserve bounds the invocations that run at once, 0 or more: at 0 every invocation is throttled. It cannot give more
// than there are processes.
// Source: AWS Lambda Developer Guide, "Configuring reserved concurrency for a function".
func (f *Function) Reserve(concurrency int) error {
	if concurrency < 0 {
		return fmt.Errorf("reserved concurrency of %s is %d; set 0 or more", f.config.Name, concurrency)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved = &concurrency
	return nil
}

// Unreserve takes the bound of [Function.Reserve] away.
func (f *Function) Unreserve() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved = nil
}

// Reserved is the bound, and whether there is one.
func (f *Function) Reserved() (concurrency int, set bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reserved == nil {
		return 0, false
	}
	return *f.reserved, true
}

// exhausted tells whether the bound is reached. The caller holds the lock.
func (f *Function) exhausted() bool {
	return f.reserved != nil && len(f.environments)-len(f.free)-f.warming >= *f.reserved
}
