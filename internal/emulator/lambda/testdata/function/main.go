// The function that the tests run: it does what its event says.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

type event struct {
	Do    string `json:"do"`
	Text  string `json:"text"`
	Count int    `json:"count"`
	// Path of a file: the function makes it to say that it has begun.
	Started string `json:"started"`
	// URL to answer an invocation that is long over.
	URL string `json:"url"`
}

type about struct {
	PID        int               `json:"pid"`
	RequestID  string            `json:"request_id"`
	ARN        string            `json:"arn"`
	Trace      string            `json:"trace"`
	DeadlineMS int64             `json:"deadline_ms"`
	Env        map[string]string `json:"env"`
	Dir        string            `json:"dir"`
}

func main() {
	switch mode := os.Getenv("INIT"); {
	case mode == "exit":
		os.Exit(7)
	case mode == "sleep":
		time.Sleep(time.Minute)
	case mode == "vanish": // asks for an event and does not wait for it
		connection, err := net.Dial("tcp", os.Getenv("AWS_LAMBDA_RUNTIME_API"))
		must(err)
		_, err = fmt.Fprint(connection, "GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: localhost\r\n\r\n")
		must(err)
		os.Exit(9)
	case mode == "error":
		post("http://"+os.Getenv("AWS_LAMBDA_RUNTIME_API")+"/2018-06-01/runtime/init/error", `{"errorType":"Config.Missing","errorMessage":"TABLE is not set"}`)
		os.Exit(1)
	case strings.HasPrefix(mode, "once:"): // fails the first time only
		if _, err := os.Stat(mode[5:]); err != nil {
			must(os.WriteFile(mode[5:], nil, 0o600))
			os.Exit(7)
		}
	case mode == "sigterm":
		lambda.StartWithOptions(handle, lambda.WithEnableSIGTERM(func() {
			fmt.Println("bye")
			os.Exit(0)
		}))
		return
	}
	lambda.Start(handle)
}

func handle(ctx context.Context, raw json.RawMessage) (any, error) {
	var e event
	must(json.Unmarshal(raw, &e))
	if e.Started != "" {
		must(os.WriteFile(e.Started, []byte(fmt.Sprint(os.Getpid())), 0o600))
	}
	switch e.Do {
	case "echo":
		return raw, nil
	case "about":
		return tell(ctx), nil
	case "sleep":
		time.Sleep(time.Minute)
	case "wait": // until the file is gone
		for {
			if _, err := os.Stat(e.Text); err != nil {
				return "done", nil
			}
			time.Sleep(time.Millisecond)
		}
	case "panic":
		panic(e.Text)
	case "panic child":
		go func() { panic(e.Text) }()
		time.Sleep(time.Minute)
	case "exit":
		os.Exit(e.Count)
	case "kill":
		must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		time.Sleep(time.Minute)
	case "print":
		for i := range e.Count {
			fmt.Printf("%s %d\n", e.Text, i)
			fmt.Fprintf(os.Stderr, "error %s %d\n", e.Text, i)
		}
		return "printed", nil
	case "print and exit":
		for i := range e.Count {
			fmt.Printf("%s %d\n", e.Text, i)
		}
		fmt.Print("no end")
		os.Exit(1)
	case "allocate":
		memory := make([]byte, e.Count)
		for i := range memory {
			memory[i] = 1
		}
		return len(memory), nil
	case "error":
		return nil, errors.New(e.Text)
	case "child": // in the process group of its parent
		command := exec.Command("sleep", "60")
		command.Stdout = os.Stdout
		must(command.Start())
		fmt.Println("child", command.Process.Pid)
		if e.Text == "and sleep" {
			time.Sleep(time.Minute)
		}
		return command.Process.Pid, nil
	case "big":
		return strings.Repeat("x", e.Count-2), nil
	case "broken stream":
		return io.MultiReader(strings.NewReader("half"), brokenReader{}), nil
	case "answer other": // tries to answer for another invocation
		return post(e.URL, `"stolen"`), nil
	case "answer twice":
		lc, _ := lambdacontext.FromContext(ctx)
		base := "http://" + os.Getenv("AWS_LAMBDA_RUNTIME_API") + "/2018-06-01/runtime/invocation/" + lc.AwsRequestID
		first, second := post(base+"/response", `"first"`), post(base+"/response", `"second"`)
		fmt.Println("answered", first, second)
		time.Sleep(time.Minute)
	case "next early": // asks for the next event without having answered
		response, err := http.Get("http://" + os.Getenv("AWS_LAMBDA_RUNTIME_API") + "/2018-06-01/runtime/invocation/next")
		must(err)
		return response.StatusCode, nil
	}
	return nil, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("torn") }

func tell(ctx context.Context) about {
	lc, _ := lambdacontext.FromContext(ctx)
	deadline, _ := ctx.Deadline()
	dir, _ := os.Getwd()
	a := about{
		PID: os.Getpid(), RequestID: lc.AwsRequestID, ARN: lc.InvokedFunctionArn, Trace: os.Getenv("_X_AMZN_TRACE_ID"),
		DeadlineMS: deadline.UnixMilli(), Env: map[string]string{}, Dir: dir,
	}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		a.Env[name] = value
	}
	return a
}

func post(url, body string) int {
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	must(err)
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
