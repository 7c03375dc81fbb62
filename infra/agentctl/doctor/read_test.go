package doctor_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"
	"github.com/go-json-experiment/json"

	"agentworker/infra/agentctl/deployment"
	"agentworker/infra/agentctl/doctor"
)

// call is one of AWS's, in the words of its protocol.
type call struct{ name, body string }

// nameOf tells which call a request is.
func nameOf(r *http.Request, body []byte) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndex(target, ".")+1:]
	}
	if form, err := url.ParseQuery(string(body)); err == nil && form.Get("Action") != "" {
		return form.Get("Action")
	}
	if _, operation, ok := strings.Cut(r.URL.Path, "/operation/"); ok {
		return operation
	}
	return r.Method + " " + r.URL.Path
}

// behind is the stack behind an AWS that answers some calls otherwise: answer is asked for each, and gives false for those
// that the stack shall answer.
func (s *stack) behind(t *testing.T, answer func(w http.ResponseWriter, c call) bool) *deployment.Deployment {
	t.Helper()
	return s.through(t, answer, "", nil)
}

// through changes the stack's answers to one call as well.
func (s *stack) through(t *testing.T, answer func(w http.ResponseWriter, c call) bool, name string, change func([]byte) []byte) *deployment.Deployment {
	t.Helper()
	to, err := url.Parse(s.chain.AWSURL())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if answer(w, call{nameOf(r, body), string(body)}) {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if name == "" || nameOf(r, body) != name {
			proxy.ServeHTTP(w, r)
			return
		}
		recorded := httptest.NewRecorder()
		proxy.ServeHTTP(recorded, r)
		maps.Copy(w.Header(), recorded.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(change(recorded.Body.Bytes()))
	}))
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(server.Close)
	d := s.at(t, server.URL)
	t.Cleanup(func() {
		if c, ok := d.AWS.HTTPClient.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	})
	return d
}

func deny(w http.ResponseWriter, c call, code string) bool {
	form := strings.Contains(c.body, "Action=")
	w.Header().Set("X-Amzn-Errortype", code)
	if form {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>no</Message></Error></ErrorResponse>`, code)
		return true
	}
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintf(w, `{"__type":%q,"message":"no"}`, code)
	return true
}

// Whatever the operator may not do is said with the permission that it needs; nothing else is made of it, and the stack is
// not called sound.
func TestAMissingPermissionOfTheOperator(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, want := range map[string]struct{ code, needs string }{
		"GetQueueAttributes":                             {"AccessDeniedException", "sqs:GetQueueAttributes"},
		"ListStackResources":                             {"AccessDenied", "cloudformation:ListStackResources"},
		"DescribeRule":                                   {"AccessDeniedException", "events:DescribeRule"},
		"ListTargetsByRule":                              {"AccessDeniedException", "events:ListTargetsByRule"},
		"DescribeTable":                                  {"AccessDeniedException", "dynamodb:DescribeTable"},
		"DescribeTimeToLive":                             {"AccessDeniedException", "dynamodb:DescribeTimeToLive"},
		"DescribeContinuousBackups":                      {"AccessDeniedException", "dynamodb:DescribeContinuousBackups"},
		"GetTopicAttributes":                             {"AuthorizationError", "sns:GetTopicAttributes"},
		"SimulatePrincipalPolicy":                        {"AccessDenied", "iam:SimulatePrincipalPolicy"},
		"GET /2015-03-31/event-source-mappings":          {"AccessDeniedException", "lambda:ListEventSourceMappings"},
		"GET /2016-08-19/account-settings":               {"AccessDeniedException", "lambda:GetAccountSettings"},
		"GET /2015-03-31/functions/worker/configuration": {"AccessDeniedException", "lambda:GetFunctionConfiguration"},
		"GET /2019-09-30/functions/worker/concurrency":   {"AccessDeniedException", "lambda:GetFunctionConcurrency"},
		"GET /2015-03-31/functions/dlqalarm/policy":      {"AccessDeniedException", "lambda:GetPolicy"},
	} {
		t.Run(want.needs, func(t *testing.T) {
			t.Parallel()
			report, err := doctor.Examine(t.Context(), s.behind(t, func(w http.ResponseWriter, c call) bool {
				return c.name == name && deny(w, c, want.code)
			}))
			if err != nil {
				t.Fatal(err)
			}
			only(t, report)
			refused := map[string]bool{}
			for _, n := range report.NotMade {
				if n.Why == doctor.NotPermitted {
					refused[n.Needs] = true
				}
			}
			if report.Sound() || len(refused) != 1 || !refused[want.needs] {
				t.Errorf("got sound: %v, not permitted: %v, want %s alone", report.Sound(), refused, want.needs)
			}
		})
	}
}

func passOn(http.ResponseWriter, call) bool { return false }

// changedJSON changes an answer in JSON.
func changedJSON(t *testing.T, change func(map[string]any)) func([]byte) []byte {
	t.Helper()
	return func(body []byte) []byte {
		var m map[string]any
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("answer: %v", err)
		}
		change(m)
		body, err := json.Marshal(m)
		if err != nil {
			t.Errorf("answer: %v", err)
		}
		return body
	}
}

const workerConfiguration = "GET /2015-03-31/functions/worker/configuration"

// Lambda decrypts a function's environment with the operator's permissions, and answers without it when they do not do.
func TestAnEnvironmentThatTheOperatorMayNotDecrypt(t *testing.T) {
	t.Parallel()
	s := start(t)
	report, err := doctor.Examine(t.Context(), s.through(t, passOn, workerConfiguration, changedJSON(t, func(m map[string]any) {
		m["Environment"] = map[string]any{"Error": map[string]any{"ErrorCode": "AccessDeniedException", "Message": "no"}}
	})))
	if err != nil {
		t.Fatal(err)
	}
	only(t, report)
	want := doctor.NotMade{What: "the environment of worker", Needs: "kms:Decrypt", Why: doctor.NotPermitted}
	if report.Sound() || !slices.Contains(report.NotMade, want) {
		t.Errorf("got sound: %v, %+v, want %+v among them", report.Sound(), report.NotMade, want)
	}
}

// Nor does anybody decrypt it with a key that is disabled; that is no matter of variables that are not set.
func TestAnEnvironmentThatNobodyCanDecrypt(t *testing.T) {
	t.Parallel()
	s := start(t)
	report, err := doctor.Examine(t.Context(), s.through(t, passOn, workerConfiguration, changedJSON(t, func(m map[string]any) {
		m["Environment"] = map[string]any{"Error": map[string]any{"ErrorCode": "KMSDisabledException", "Message": "no"}}
	})))
	if err != nil {
		t.Fatal(err)
	}
	only(t, report, found{doctor.Environment, "worker"})
	if got := report.Findings[0].Problem; !strings.Contains(got, "cannot be decrypted (KMSDisabledException)") {
		t.Errorf("got %q, want the key's state", got)
	}
}

// Why an update has failed stands elsewhere than why a function has.
func TestWhyAnUpdateHasFailedIsSaid(t *testing.T) {
	t.Parallel()
	s := start(t)
	report, err := doctor.Examine(t.Context(), s.through(t, passOn, workerConfiguration, changedJSON(t, func(m map[string]any) {
		m["LastUpdateStatus"], m["LastUpdateStatusReason"] = "Failed", "the subnet is out of addresses"
	})))
	if err != nil {
		t.Fatal(err)
	}
	only(t, report, found{doctor.FunctionState, "worker"})
	if got := report.Findings[0].Problem; !strings.HasSuffix(got, "its last update Failed: the subnet is out of addresses") {
		t.Errorf("got %q, want the reason", got)
	}
}

// CloudWatch updates an alarm's state also when only its reason is another.
func TestSinceWhenAnAlarmIsInItsState(t *testing.T) {
	t.Parallel()
	s := start(t)
	report, err := doctor.Examine(t.Context(), s.through(t, passOn, "DescribeAlarms", func(body []byte) []byte {
		v, err := cbor.Decode(body)
		if err != nil {
			t.Errorf("answer: %v", err)
			return body
		}
		for _, a := range v.(cbor.Map)["MetricAlarms"].(cbor.List) {
			a.(cbor.Map)["StateValue"] = cbor.String("INSUFFICIENT_DATA")
			a.(cbor.Map)["StateUpdatedTimestamp"] = &cbor.Tag{ID: 1, Value: cbor.Float64(time.Now().Unix())}
			a.(cbor.Map)["StateTransitionedTimestamp"] = &cbor.Tag{ID: 1, Value: cbor.Float64(1767225600)}
		}
		return cbor.Encode(v)
	}))
	if err != nil {
		t.Fatal(err)
	}
	only(t, report, found{doctor.AlarmState, "agent-tasks-dlq-depth"}, found{doctor.AlarmState, "agent-tasks-ordered-dlq-depth"})
	for _, f := range report.Findings {
		if !strings.Contains(f.Problem, "since 2026-01-01T00:00:00Z") {
			t.Errorf("got %q, want the time of its transition", f.Problem)
		}
	}
}

// What CloudFormation has deleted it still lists for a while.
func TestAPartThatIsNoMoreOfTheStack(t *testing.T) {
	t.Parallel()
	s := start(t)
	report, err := doctor.Examine(t.Context(), s.through(t, passOn, "ListStackResources", func(body []byte) []byte {
		const first = "<StackResourceSummaries>"
		if !bytes.Contains(body, []byte(first)) {
			t.Errorf("got %s, want %s in it", body, first)
		}
		return bytes.Replace(body, []byte(first), []byte(first+`<member><LogicalResourceId>OldAlarm</LogicalResourceId><PhysicalResourceId>old</PhysicalResourceId>
			<ResourceType>AWS::CloudWatch::Alarm</ResourceType><ResourceStatus>DELETE_COMPLETE</ResourceStatus><LastUpdatedTimestamp>2026-01-01T00:00:00Z</LastUpdatedTimestamp></member>`), 1)
	}))
	if err != nil {
		t.Fatal(err)
	}
	only(t, report)
}

// IAM is asked for every action that the functions are known to need, on what they need it on.
func TestARoleThatLacksAnActionIsFound(t *testing.T) {
	t.Parallel()
	s := start(t)
	report, err := doctor.Examine(t.Context(), s.behind(t, func(w http.ResponseWriter, c call) bool {
		form, err := url.ParseQuery(c.body)
		if err != nil || form.Get("Action") != "SimulatePrincipalPolicy" {
			return false
		}
		// One at a time: IAM may give fewer than were asked for.
		i := 1
		_, _ = fmt.Sscan(form.Get("Marker"), &i)
		more := form.Get(fmt.Sprintf("ActionNames.member.%d", i+1)) != ""
		action, decision := form.Get(fmt.Sprintf("ActionNames.member.%d", i)), "allowed"
		lacks := action == "sqs:DeleteMessage" && strings.HasSuffix(form.Get("ResourceArns.member.1"), ":agent-tasks") ||
			action == "dynamodb:Query" && form.Get("ResourceArns.member.1") == "arn:aws:dynamodb:us-east-1:000000000000:table/agent-checkpoints"
		if form.Get("PolicySourceArn") == "arn:aws:iam::000000000000:role/worker" && lacks {
			decision = "implicitDeny"
		}
		marker := ""
		if more {
			marker = fmt.Sprintf("<Marker>%d</Marker>", i+1)
		}
		_, _ = fmt.Fprintf(w, `<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><SimulatePrincipalPolicyResult>
			<IsTruncated>%v</IsTruncated>%s<EvaluationResults><member><EvalActionName>%s</EvalActionName><EvalDecision>%s</EvalDecision></member></EvaluationResults>
			</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>`, more, marker, action, decision)
		return true
	}))
	if err != nil {
		t.Fatal(err)
	}
	only(t, report, found{doctor.Role, "worker"})
	if got, want := report.Findings[0].Problem, "worker: its role does not allow sqs:DeleteMessage on agent-tasks, dynamodb:Query on the table"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A table without point-in-time recovery is found where it can be asked for.
func TestPointInTimeRecoveryIsAskedFor(t *testing.T) {
	t.Parallel()
	s := start(t)
	for status, want := range map[string][]found{"ENABLED": nil, "DISABLED": {{doctor.Recovery, "agent-checkpoints"}}} {
		report, err := doctor.Examine(t.Context(), s.behind(t, func(w http.ResponseWriter, c call) bool {
			if c.name != "DescribeContinuousBackups" {
				return false
			}
			_, _ = fmt.Fprintf(w, `{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"ENABLED","PointInTimeRecoveryDescription":{"PointInTimeRecoveryStatus":%q}}}`, status)
			return true
		}))
		if err != nil {
			t.Fatal(err)
		}
		only(t, report, want...)
	}
}

// A place that does not know a call, as emulators do not know them all, is no fault of the stack.
func TestACallThatThePlaceDoesNotKnow(t *testing.T) {
	t.Parallel()
	report, err := doctor.Examine(t.Context(), start(t).behind(t, func(w http.ResponseWriter, c call) bool {
		if c.name != "DescribeRule" {
			return false
		}
		w.WriteHeader(http.StatusNotImplemented)
		_, _ = io.WriteString(w, `{"__type":"InternalFailure","message":"not yet implemented"}`)
		return true
	}))
	if err != nil {
		t.Fatal(err)
	}
	only(t, report)
	if want := (doctor.NotMade{What: "dead-letter-sweep", Needs: "events:DescribeRule", Why: doctor.NotServed}); !slices.Contains(report.NotMade, want) {
		t.Errorf("got %+v, want %+v among them", report.NotMade, want)
	}
}

// A call that AWS throttles says nothing of the stack either, and does not keep the others from being made.
func TestAThrottledCall(t *testing.T) {
	t.Parallel()
	d := start(t).behind(t, func(w http.ResponseWriter, c call) bool {
		return c.name == "SimulatePrincipalPolicy" && deny(w, c, "Throttling") || c.name == "DescribeRule" && deny(w, c, "ThrottlingException")
	})
	d.AWS.RetryMaxAttempts = 1
	report, err := doctor.Examine(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	only(t, report)
	for _, want := range []doctor.NotMade{
		{What: "the roles' permissions", Needs: "iam:SimulatePrincipalPolicy", Why: doctor.Throttled},
		{What: "dead-letter-sweep", Needs: "events:DescribeRule", Why: doctor.Throttled},
	} {
		if report.Sound() || !slices.Contains(report.NotMade, want) {
			t.Errorf("got sound: %v and %+v, want %+v", report.Sound(), report.NotMade, want)
		}
	}
}

// Nor does an answer that makes no sense say anything of the stack; but then nobody knows.
func TestAnAnswerThatMakesNoSense(t *testing.T) {
	t.Parallel()
	report, err := doctor.Examine(t.Context(), start(t).behind(t, func(w http.ResponseWriter, c call) bool {
		if c.name == "DescribeAlarms" {
			_, _ = io.WriteString(w, "it works")
		}
		return c.name == "DescribeAlarms"
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := doctor.NotMade{What: "the alarms", Needs: "cloudwatch:DescribeAlarms", Why: doctor.NotUnderstood}
	if len(report.Findings) > 0 || report.Sound() || !slices.Contains(report.NotMade, want) {
		t.Errorf("got sound: %v and %+v, want %+v and nothing found", report.Sound(), report, want)
	}
}

// A stack that is not reached any more is an error, and no finding.
func TestAConnectionThatBreaksIsAnError(t *testing.T) {
	t.Parallel()
	d := start(t).behind(t, func(w http.ResponseWriter, c call) bool {
		if c.name != "GetTopicAttributes" {
			return false
		}
		panic(http.ErrAbortHandler)
	})
	d.AWS.RetryMaxAttempts = 1
	if report, err := doctor.Examine(t.Context(), d); err == nil {
		t.Errorf("got %+v, want an error", report)
	}
	d = start(t).behind(t, func(w http.ResponseWriter, c call) bool {
		return c.name == "DescribeTable" && deny(w, c, "ExpiredTokenException")
	})
	var unreachable *deployment.UnreachableError
	if report, err := doctor.Examine(t.Context(), d); !errors.As(err, &unreachable) {
		t.Errorf("got %+v, %v, want an UnreachableError that says to log in again", report, err)
	}
}

// Looking changes nothing: every call reads, and none receives.
func TestItOnlyReads(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[string]bool{}
	_, err := doctor.Examine(t.Context(), start(t).behind(t, func(_ http.ResponseWriter, c call) bool {
		mu.Lock()
		defer mu.Unlock()
		calls[c.name] = true
		return false
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name := range calls {
		reads := slices.ContainsFunc([]string{"Get", "List", "Describe", "GET ", "SimulatePrincipalPolicy"}, func(verb string) bool { return strings.HasPrefix(name, verb) })
		if !reads {
			t.Errorf("it calls %s", name)
		}
	}
	if len(calls) < 15 {
		t.Errorf("got %d kinds of calls, want 15 or more: %v", len(calls), calls)
	}
}
