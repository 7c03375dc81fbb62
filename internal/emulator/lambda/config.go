package lambda

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Limits of Lambda. Source: AWS Lambda Developer Guide, "Lambda quotas".
const (
	// MaxPayload is the largest event of a synchronous invocation, in bytes.
	MaxPayload = 6 << 20
	// MaxResponse is the largest answer of a function, in bytes: what Lambda's own error message names.
	MaxResponse = MaxPayload + 100
	// MaxAsyncPayload is the largest event of an asynchronous invocation, in bytes.
	MaxAsyncPayload = 1 << 20

	maxLogTail         = 4 << 10
	defaultInitTimeout = 10 * time.Second
	defaultTimeout     = 3 * time.Second
	defaultMemoryMiB   = 128
)

// Config describes one function.
type Config struct {
	// Name of the function, as in its ARN.
	Name string
	// Binary is the path of the executable, which speaks the Runtime API (provided.al2023). Its folder becomes the working
	// folder of the process.
	Binary string
	// Args of the executable, usually none.
	Args []string
	// Env holds KEY=VALUE pairs for the process, which otherwise sees PATH, TMPDIR and what Lambda sets. Nothing else of
	// this process's environment is handed on, so that no function meets the credentials of the person who runs it.
	// Names that Lambda reserves are overwritten.
	Env []string
	// Timeout of one invocation, 1 ms to 15 minutes; zero means 3 s, Lambda's own default.
	Timeout time.Duration
	// InitTimeout is the time until a new process asks for its first event; zero means 10 s, Lambda's fixed value.
	InitTimeout time.Duration
	// MemoryMiB is what the function is told that it has; zero means 128. It is not enforced.
	MemoryMiB int
	// Concurrency is how many processes there are at most, each with one invocation at a time; zero means 1.
	Concurrency int
	// Region and AccountID form the ARN; empty means us-east-1 and 000000000000.
	Region, AccountID string
	// Output gets each line that a process writes and the platform's own. It is never called by two goroutines at once,
	// must not call the Function, and holds the process up while it blocks. Nil drops the lines.
	Output func(Line)
	// Ended gets each process's state after its end, with the processor time that it has used. It is called on a goroutine
	// of its own for each process, before the function counts as closed. Nil: nobody wants to know.
	Ended func(*os.ProcessState)
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.InitTimeout <= 0 {
		c.InitTimeout = defaultInitTimeout
	}
	if c.MemoryMiB <= 0 {
		c.MemoryMiB = defaultMemoryMiB
	}
	if c.Concurrency <= 0 {
		c.Concurrency = 1
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	if c.AccountID == "" {
		c.AccountID = "000000000000"
	}
	if absolute, err := filepath.Abs(c.Binary); err == nil {
		c.Binary = absolute
	}
	return c
}

// environ is the environment of a process. Source: AWS Lambda Developer Guide, "Using Lambda environment variables".
func (c Config) environ(id, runtimeAPI, logStream string) []string {
	task := filepath.Dir(c.Binary)
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + os.TempDir(),
		"LANG=en_US.UTF-8",
		"TZ=:UTC",
		"AWS_LAMBDA_LOG_FORMAT=JSON",
	}
	env = append(env, c.Env...)
	return append(env,
		"AWS_LAMBDA_RUNTIME_API="+runtimeAPI,
		"AWS_SDK_UA_APP_ID="+id, // see Function.Signal
		"AWS_LAMBDA_FUNCTION_NAME="+c.Name,
		fmt.Sprintf("AWS_LAMBDA_FUNCTION_MEMORY_SIZE=%d", c.MemoryMiB),
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/"+c.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME="+logStream,
		"AWS_REGION="+c.Region,
		"AWS_DEFAULT_REGION="+c.Region,
		"LAMBDA_TASK_ROOT="+task,
		"LAMBDA_RUNTIME_DIR="+task,
		"_HANDLER=bootstrap",
	)
}
