package lambda

import (
	"errors"
	"fmt"
	"slices"
)

// Permission is a statement of a function's resource policy: a service may invoke it, on behalf of one resource or of any.
// Source: AWS Lambda API Reference, "AddPermission".
type Permission struct {
	ID        string // the statement's, once in the policy
	Principal string // a service, as in events.amazonaws.com
	SourceARN string // the resource that makes the service invoke; "": any
}

// Errors of a function's resource policy.
var (
	ErrPermissionExists = errors.New("the statement id is taken")
	ErrNoPermission     = errors.New("there is no such statement")
)

// AddPermission adds a statement. It fails with [ErrPermissionExists].
func (f *Function) AddPermission(p Permission) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.permissions, func(have Permission) bool { return have.ID == p.ID }) {
		return fmt.Errorf("%s: statement %s: %w", f.config.Name, p.ID, ErrPermissionExists)
	}
	f.permissions = append(f.permissions, p)
	return nil
}

// RemovePermission removes a statement. It fails with [ErrNoPermission].
func (f *Function) RemovePermission(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.permissions)
	f.permissions = slices.DeleteFunc(slices.Clone(f.permissions), func(have Permission) bool { return have.ID == id })
	if len(f.permissions) == before {
		return fmt.Errorf("%s: statement %s: %w", f.config.Name, id, ErrNoPermission)
	}
	return nil
}

// Permissions are the statements, in the order of adding.
func (f *Function) Permissions() []Permission {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.permissions)
}

// Permits tells whether a service may invoke the function on behalf of a resource.
func (f *Function) Permits(principal, sourceARN string) bool {
	return slices.ContainsFunc(f.Permissions(), func(p Permission) bool {
		return p.Principal == principal && (p.SourceARN == "" || p.SourceARN == sourceARN)
	})
}

// Settings is how the function is configured, with the defaults filled in.
func (f *Function) Settings() Config {
	c := f.config
	c.Env = slices.Clone(c.Env)
	return c
}
