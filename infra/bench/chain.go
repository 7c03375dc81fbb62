package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"agentworker/infra/bench/contest"
	"agentworker/internal/emulator"
	"agentworker/internal/emulator/mapping"
	"agentworker/internal/topology"
)

const (
	chainTasks   = 1000 // of a round
	chainClients = 8
	idleTasks    = 200
	readyRuns    = 3
)

// chain measures from the HTTP API to the result, with two worker processes.
func (b *bench) chain(ctx context.Context) (err error) {
	if err := b.ready(ctx); err != nil {
		return err
	}
	var deleted atomic.Int64
	finished := make(chan struct{}, 1)
	chain, err := emulator.Start(ctx, emulator.Config{
		Stack: topology.Default(), Workers: 2, BinDir: filepath.Join("build", "local"), ToolsDir: b.tools, Logger: slog.New(slog.DiscardHandler),
		Batch: func(_ string, e mapping.Event) {
			if deleted.Add(int64(e.Deleted))%chainTasks == 0 && e.Deleted > 0 {
				finished <- struct{}{}
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chain.Stop()) }()
	transport := &http.Transport{MaxIdleConnsPerHost: chainClients}
	defer transport.CloseIdleConnections()
	api := client{&http.Client{Transport: transport}, chain.APIURL()}

	perSecond := series{}
	for round := range b.rounds {
		began := time.Now()
		g, submitting := errgroup.WithContext(ctx)
		for i := range chainClients {
			g.Go(func() error {
				for n := range chainTasks / chainClients {
					if _, err := api.ask(submitting, contest.Thread((n*chainClients+i)%100+100*round)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		select {
		case <-finished:
		case <-time.After(2 * time.Minute):
			return fmt.Errorf("%d of %d tasks are done after two minutes", deleted.Load(), chainTasks*(round+1))
		case <-ctx.Done():
			return ctx.Err()
		}
		perSecond.add("ours", chainTasks/time.Since(began).Seconds())
	}
	took := series{}
	for range idleTasks {
		began := time.Now()
		id, err := api.ask(ctx, contest.Thread(0))
		if err != nil {
			return err
		}
		if err := api.await(ctx, id); err != nil {
			return err
		}
		took.add("ours", milliseconds(time.Since(began)))
	}
	f := b.results.of("ours")
	f.TasksPerSecond = perSecond.median("ours")
	f.Latency = &latency{percentile(took["ours"], 0.5), percentile(took["ours"], 0.99)}
	return nil
}

// ready measures from make run until the API answers; everything is built and installed by then.
func (b *bench) ready(ctx context.Context) error {
	took := series{}
	for range readyRuns {
		ports, err := freePorts(ctx, 2)
		if err != nil {
			return err
		}
		command := exec.CommandContext(ctx, "make", "--no-print-directory", "run")
		command.Env = append(os.Environ(), "PORT="+ports[0], "AWS_PORT="+ports[1], "DATA_DIR=", "CHAOS=", "WORKERS=2", "MAKEFLAGS=")
		began := time.Now()
		stop, err := start(command)
		if err != nil {
			return err
		}
		err = until(ctx, func() error {
			_, err := get(ctx, http.DefaultClient, "http://127.0.0.1:"+ports[0]+"/healthz")
			return err
		})
		took.add("ours", time.Since(began).Seconds())
		stop()
		if err != nil {
			return fmt.Errorf("make run: %w", err)
		}
	}
	b.results.of("ours").Ready = took.median("ours")
	return nil
}

// client is a client of the HTTP API.
type client struct {
	http *http.Client
	url  string
}

// ask submits a question.
func (c client) ask(ctx context.Context, thread string) (id string, err error) {
	body, err := json.Marshal(struct {
		Thread   string `json:"thread_id"`
		Question string `json:"question"`
	}{thread, contest.Question})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/agent/query", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := do(c.http, r, http.StatusAccepted)
	if err != nil {
		return "", err
	}
	var accepted struct {
		TaskID string `json:"task_id"`
	}
	err = json.Unmarshal(answer, &accepted)
	return accepted.TaskID, err
}

// await returns when the task has succeeded.
func (c client) await(ctx context.Context, id string) error {
	for {
		answer, err := get(ctx, c.http, c.url+"/agent/tasks/"+id+"?wait=20")
		if err != nil {
			return err
		}
		var task struct {
			Status string `json:"status"`
		}
		switch err := json.Unmarshal(answer, &task); {
		case err != nil:
			return err
		case task.Status == "succeeded":
			return nil
		case task.Status == "failed":
			return fmt.Errorf("task %s has failed", id)
		}
	}
}

func get(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return do(c, r, http.StatusOK)
}

func do(c *http.Client, r *http.Request, want int) ([]byte, error) {
	res, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s %s: status %d: %s", r.Method, r.URL.Path, res.StatusCode, body)
	}
	return body, err
}
