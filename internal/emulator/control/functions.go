package control

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"agentworker/internal/emulator/lambda"
)

const jsonType = "application/json"

// lambdaRoutes are the calls by their paths. Source: AWS Lambda API Reference, the pages of the calls.
func (p *Plane) lambdaRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	route := func(pattern string, status int, call func(*http.Request) (any, *fault)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, f := call(r)
			if f != nil {
				writeFault(w, jsonType, f)
				return
			}
			writeJSON(w, jsonType, status, answer)
		})
	}
	const functions = "/2015-03-31/functions/{name}"
	route("GET "+functions+"/configuration", http.StatusOK, p.getConfiguration)
	route("GET "+functions+"/policy", http.StatusOK, p.getPolicy)
	route("POST "+functions+"/policy", http.StatusCreated, p.addPermission)
	route("DELETE "+functions+"/policy/{statement}", http.StatusNoContent, p.removePermission)
	route("GET /2019-09-30/functions/{name}/concurrency", http.StatusOK, p.getConcurrency)
	route("PUT /2017-10-31/functions/{name}/concurrency", http.StatusOK, p.putConcurrency)
	route("DELETE /2017-10-31/functions/{name}/concurrency", http.StatusNoContent, p.deleteConcurrency)
	route("GET /2016-08-19/account-settings", http.StatusOK, p.getAccount)
	route("GET "+mappingsPath, http.StatusOK, p.listMappings)
	route("GET "+mappingsPath+"/{$}", http.StatusOK, p.listMappings) // as older SDKs write it
	route("GET "+mappingsPath+"/{uuid}", http.StatusOK, p.getMapping)
	route("PUT "+mappingsPath+"/{uuid}", http.StatusAccepted, p.updateMapping)
	return mux
}

// Lambda answers Lambda's calls that are known here and hands Invoke to next.
func (p *Plane) Lambda(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := p.lambda.Handler(r)
		switch {
		case pattern != "":
			p.lambda.ServeHTTP(w, r)
		case strings.HasSuffix(r.URL.Path, "/invocations"):
			next.ServeHTTP(w, r)
		default:
			writeFault(w, jsonType, refuse(http.StatusNotFound, "UnknownOperationException", "There is no "+r.Method+" "+r.URL.Path+
				" here: of Lambda's calls served are Invoke, GetFunctionConfiguration, GetPolicy, AddPermission, RemovePermission, "+
				"GetFunctionConcurrency, PutFunctionConcurrency, DeleteFunctionConcurrency, GetAccountSettings, "+
				"ListEventSourceMappings, GetEventSourceMapping and UpdateEventSourceMapping"))
		}
	})
}

// configuration is a function's settings as Lambda tells them.
// Source: AWS Lambda API Reference, "GetFunctionConfiguration".
type configuration struct {
	FunctionName     string
	FunctionARN      string `json:"FunctionArn"`
	Runtime          string
	Role             string
	Handler          string
	PackageType      string
	Architectures    []string
	Timeout          int
	MemorySize       int
	Version          string
	State            string
	LastUpdateStatus string
	Environment      environment
}

type environment struct {
	Variables map[string]string
}

func (p *Plane) getConfiguration(r *http.Request) (any, *fault) {
	f, bad := p.function(r.PathValue("name"))
	if bad != nil {
		return nil, bad
	}
	settings := f.Settings()
	variables := map[string]string{}
	for _, pair := range settings.Env {
		if name, value, _ := strings.Cut(pair, "="); !slices.Contains(p.config.Hidden, name) && !strings.HasPrefix(name, "AWS_") {
			variables[name] = value // the last one counts, as in the process
		}
	}
	return configuration{
		FunctionName: f.Name(), FunctionARN: f.ARN(), Runtime: "provided.al2023", Handler: "bootstrap", PackageType: "Zip",
		Role:          "arn:aws:iam::" + p.config.AccountID + ":role/" + f.Name(),
		Architectures: []string{map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH]},
		Timeout:       int(settings.Timeout.Seconds()), MemorySize: settings.MemoryMiB, Version: "$LATEST",
		State: "Active", LastUpdateStatus: "Successful", Environment: environment{variables},
	}, nil
}

type concurrency struct {
	ReservedConcurrentExecutions *int `json:",omitzero"`
}

func (p *Plane) getConcurrency(r *http.Request) (any, *fault) {
	f, bad := p.function(r.PathValue("name"))
	if bad != nil {
		return nil, bad
	}
	if n, set := f.Reserved(); set {
		return concurrency{&n}, nil
	}
	return concurrency{}, nil
}

func (p *Plane) putConcurrency(r *http.Request) (any, *fault) {
	f, bad := p.function(r.PathValue("name"))
	if bad != nil {
		return nil, bad
	}
	var in concurrency
	if bad := read(r, &in); bad != nil {
		return nil, bad
	}
	if in.ReservedConcurrentExecutions == nil {
		return nil, invalid("ReservedConcurrentExecutions is missing")
	}
	if err := f.Reserve(*in.ReservedConcurrentExecutions); err != nil {
		return nil, invalid(err.Error())
	}
	return in, nil
}

func (p *Plane) deleteConcurrency(r *http.Request) (any, *fault) {
	f, bad := p.function(r.PathValue("name"))
	if bad == nil {
		f.Unreserve()
	}
	return nil, bad
}

// getAccount tells how many processes there are for all functions together, which is this machine's concurrency limit.
func (p *Plane) getAccount(*http.Request) (any, *fault) {
	all, reserved := 0, 0
	for _, f := range p.config.Functions {
		all += f.Settings().Concurrency
		n, _ := f.Reserved()
		reserved += n
	}
	type limits struct{ ConcurrentExecutions, UnreservedConcurrentExecutions int }
	return struct {
		AccountLimit limits
		AccountUsage struct{ FunctionCount int }
	}{limits{all, all - reserved}, struct{ FunctionCount int }{len(p.config.Functions)}}, nil
}

// Source: AWS Lambda Developer Guide, "Using resource-based policies in Lambda".
type policy struct {
	Version   string
	ID        string `json:"Id"`
	Statement []statement
}

type statement struct {
	Sid, Effect, Action, Resource string
	Principal                     map[string]string
	Condition                     map[string]map[string]string `json:",omitzero"`
}

func statementOf(f *lambda.Function, p lambda.Permission) statement {
	s := statement{
		Sid: p.ID, Effect: "Allow", Action: "lambda:InvokeFunction", Resource: f.ARN(), Principal: map[string]string{"Service": p.Principal},
	}
	if p.SourceARN != "" {
		s.Condition = map[string]map[string]string{"ArnLike": {"AWS:SourceArn": p.SourceARN}}
	}
	return s
}

func (p *Plane) getPolicy(r *http.Request) (any, *fault) {
	f, bad := p.function(r.PathValue("name"))
	if bad != nil {
		return nil, bad
	}
	permissions := f.Permissions()
	if len(permissions) == 0 {
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException", "The resource you requested does not exist.")
	}
	doc := policy{Version: "2012-10-17", ID: "default"}
	for _, permission := range permissions {
		doc.Statement = append(doc.Statement, statementOf(f, permission))
	}
	text, err := json.Marshal(doc, json.Deterministic(true))
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "ServiceException", err.Error())
	}
	return struct{ Policy string }{string(text)}, nil
}

func (p *Plane) addPermission(r *http.Request) (any, *fault) {
	f, bad := p.function(r.PathValue("name"))
	if bad != nil {
		return nil, bad
	}
	var in struct {
		StatementID string `json:"StatementId"`
		Action      string
		Principal   string
		SourceARN   string `json:"SourceArn"`
	}
	if bad := read(r, &in); bad != nil {
		return nil, bad
	}
	if in.StatementID == "" || in.Principal == "" || in.Action != "lambda:InvokeFunction" {
		return nil, invalid("StatementId, Principal and the Action lambda:InvokeFunction are required")
	}
	permission := lambda.Permission{ID: in.StatementID, Principal: in.Principal, SourceARN: in.SourceARN}
	if err := f.AddPermission(permission); err != nil {
		return nil, refuse(http.StatusConflict, "ResourceConflictException", err.Error())
	}
	text, err := json.Marshal(statementOf(f, permission), json.Deterministic(true))
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "ServiceException", err.Error())
	}
	return struct{ Statement string }{string(text)}, nil
}

func (p *Plane) removePermission(r *http.Request) (any, *fault) {
	f, bad := p.function(r.PathValue("name"))
	if bad != nil {
		return nil, bad
	}
	if err := f.RemovePermission(r.PathValue("statement")); errors.Is(err, lambda.ErrNoPermission) {
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException", err.Error())
	}
	return nil, nil
}

func invalid(message string) *fault {
	return refuse(http.StatusBadRequest, "InvalidParameterValueException", message)
}

func read(r *http.Request, into any) *fault {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "InvalidRequestContentException", "Could not parse request body into json: "+err.Error())
	}
	return nil
}
