package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// agentctl drives the stack as an operator does, who knows no more of it than its stage and region.
func (r *rehearsal) agentctl(ctx context.Context) error {
	const thread = "rehearsal-agentctl"
	var asked struct {
		Status string `json:"status"`
	}
	if err := r.operate(ctx, &asked, "submit", "What is a dead-letter queue?", "--thread", thread, "--wait"); err != nil {
		return err
	}
	var shown struct {
		Tasks       []task     `json:"tasks"`
		Checkpoints []struct{} `json:"checkpoints"`
	}
	if err := r.operate(ctx, &shown, "thread", "show", thread); err != nil {
		return err
	}
	if asked.Status != "succeeded" || len(shown.Tasks) != 1 || len(shown.Checkpoints) == 0 {
		return fmt.Errorf("asked: %+v, shown: %+v, want one task that has succeeded, with its checkpoints", asked, shown)
	}
	var ticket struct {
		Status string `json:"status"`
	}
	if err := r.operate(ctx, &ticket, "ticket", "TK-1"); err != nil || ticket.Status != "resolved" {
		return errors.Join(err, fmt.Errorf("ticket: %+v, want it resolved", ticket))
	}
	var load struct {
		Succeeded int            `json:"succeeded"`
		Reasons   map[string]int `json:"reasons"`
	}
	if err := r.operate(ctx, &load, "load", "-n", "10", "-c", "4", "--thread", thread+"-load"); err != nil || load.Succeeded != 10 {
		return errors.Join(err, fmt.Errorf("load: %+v, want ten that have succeeded", load))
	}
	var deleted struct {
		Deleted struct {
			Tasks       int `json:"tasks"`
			Checkpoints int `json:"checkpoints"`
			Results     int `json:"results"`
		} `json:"deleted"`
	}
	if err := r.operate(ctx, &deleted, "thread", "delete", thread, "--yes"); err != nil || deleted.Deleted.Tasks != 1 ||
		deleted.Deleted.Checkpoints != len(shown.Checkpoints) || deleted.Deleted.Results != 1 {
		return errors.Join(err, fmt.Errorf("deleted: %+v, want what was shown: the task, its %d checkpoints and its result", deleted, len(shown.Checkpoints)))
	}
	if err := r.operate(ctx, &shown, "thread", "show", thread); err == nil || !strings.Contains(err.Error(), "there is no thread") {
		return fmt.Errorf("deleted, and shown: %+v (%w), want nothing left", shown, err)
	}
	return nil
}

// operate runs agentctl in the environment of the CDK's command line, which leads to the local AWS only.
func (r *rehearsal) operate(ctx context.Context, answer any, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	root := filepath.Dir(r.cdk.dir)
	command := exec.CommandContext(ctx, filepath.Join(root, "build", "agentctl"), append([]string{"--json", "--stage", stage, "--region", region}, arguments...)...) //nolint:gosec // G204: built by make
	command.Env, command.SysProcAttr = r.cdk.env, child()
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		_ = json.Unmarshal(out.Bytes(), answer) // an answer of "no" is one too
		return fmt.Errorf("agentctl %s: %w\n%s%s", strings.Join(arguments, " "), errors.Join(ctx.Err(), err), &out, &problems)
	}
	return json.Unmarshal(out.Bytes(), answer)
}
