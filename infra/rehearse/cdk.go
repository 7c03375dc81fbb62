package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// cdk runs the CDK's command line on the real app, against the local AWS only.
type cdk struct {
	binary, dir, work string
	env               []string
}

func newCDK(work, awsURL string) *cdk {
	tools := filepath.Dir(filepath.Dir(work))
	c := &cdk{
		binary: filepath.Join(tools, "cdk", "node_modules", ".bin", "cdk"),
		dir:    filepath.Join(filepath.Dir(tools), "infra"), work: work,
	}
	for _, pair := range os.Environ() {
		// Nothing of whoever runs this leads to a real account.
		if !strings.HasPrefix(pair, "AWS_") && !strings.HasPrefix(pair, "CDK_") {
			c.env = append(c.env, pair)
		}
	}
	c.env = append(c.env,
		"AWS_ENDPOINT_URL="+awsURL, "AWS_REGION="+region, "AWS_DEFAULT_REGION="+region,
		"AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey,
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
		"CDK_HOME="+filepath.Join(work, "cdk"), "CI=true",
		// The template's own validation is make synth's; here it would only be repeated.
		"CDK_VALIDATION=false",
		"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20", "AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED=true",
		// The functions run on this machine.
		"ARCH="+runtime.GOARCH,
	)
	return c
}

const (
	region    = "us-east-1"
	account   = "000000000000"
	accessKey = "test"
	secretKey = "test"
)

func (c *cdk) bootstrap(ctx context.Context) error {
	_, err := c.run(ctx, stage, nil, "bootstrap", "aws://"+account+"/"+region)
	return err
}

// deploy returns the stack's outputs and what the command line said.
func (c *cdk) deploy(ctx context.Context, stage string, settings ...string) (outputs, string, error) {
	file := filepath.Join(c.work, "outputs.json")
	said, err := c.run(ctx, stage, settings, "deploy", "--require-approval", "never", "--outputs-file", file)
	if err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(file) //nolint:gosec // G304: our own folder
	if err != nil {
		return nil, "", err
	}
	var byStack map[string]outputs
	if err := json.Unmarshal(text, &byStack); err != nil {
		return nil, "", err
	}
	out := byStack["agentworker-"+stage]
	if len(out) == 0 {
		return nil, "", fmt.Errorf("the stack has no outputs: %s", text)
	}
	return out, said, nil
}

func (c *cdk) destroy(ctx context.Context, stage string) error {
	_, err := c.run(ctx, stage, nil, "destroy", "--force")
	return err
}

// run returns what the command line said; its error has that in it too.
func (c *cdk) run(ctx context.Context, stage string, settings []string, arguments ...string) (string, error) {
	arguments = append(arguments, "--output", filepath.Join(c.work, "cdk.out"), "-c", "stage="+stage, "-c", "architecture="+runtime.GOARCH)
	for _, s := range settings {
		arguments = append(arguments, "-c", s)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) // the app's first compilation takes minutes
	defer cancel()
	command := exec.CommandContext(ctx, c.binary, arguments...) //nolint:gosec // G204: installed by make
	command.Dir, command.Env, command.SysProcAttr = c.dir, c.env, child()
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("cdk %s: %w\n%s", arguments[0], errors.Join(ctx.Err(), err), tail(said.String()))
	}
	return said.String(), nil
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

func contains(text, want string) error {
	if !strings.Contains(text, want) {
		return fmt.Errorf("the CDK did not say %q:\n%s", want, tail(text))
	}
	return nil
}

// outputs of a stack, by name.
type outputs map[string]string

// identity are the outputs that change when a stateful resource is replaced, or clients would have to be told.
func identity() []string {
	return []string{"ApiUrl", "TableName", "TopicArn", "QueueUrl", "OrderedQueueUrl", "DeadLetterQueueUrl", "OrderedDeadLetterQueueUrl"}
}

// same fails when a stateful resource is another one now.
func (o outputs) same(now outputs) error {
	for _, name := range identity() {
		if o[name] == "" || o[name] != now[name] {
			return fmt.Errorf("%s was %q and is %q: it has been replaced", name, o[name], now[name])
		}
	}
	return nil
}

// disjoint fails when two stages share a resource.
func (o outputs) disjoint(other outputs) error {
	for _, name := range identity() {
		if other[name] == "" || o[name] == other[name] {
			return fmt.Errorf("both stages have the %s %q", name, o[name])
		}
	}
	return nil
}
