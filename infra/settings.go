package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentworker/internal/config"
	"agentworker/internal/topology"
)

// Settings is what a deployment can be told by CDK context.
type Settings struct {
	Topology topology.Stack

	// Stage is in the stack's name and in front of the alarms' names: any number of stages live in one account.
	Stage string
	// Architecture of the functions: arm64 or amd64, as Go calls them.
	Architecture string
	// BinDir holds <function>/bootstrap for that architecture.
	BinDir string

	Auth Auth
	// CORSOrigins are the origins of web pages that may call the API; none: CORS is off.
	CORSOrigins []string
	// RatePerSecond and Burst bound the API's requests.
	RatePerSecond, Burst int

	// Worker holds what the worker asks and searches: model, retriever, keys and topics. The rest of it is the stack's.
	Worker config.Worker

	// AlarmEmail is asked to subscribe to the topic; "": nobody is.
	AlarmEmail string
	// LogRetentionDays is one of the numbers that CloudWatch Logs has.
	LogRetentionDays int

	unset map[string]bool // settings that nobody made
}

// Auth is who may call the API.
type Auth struct {
	Kind string // AuthIAM, AuthJWT or AuthNone
	// Issuer and Audience are for AuthJWT: who issues the tokens, an https URL, and whom they are for, at least one.
	Issuer   string
	Audience []string
}

// The kinds of authorization.
const (
	AuthIAM  = "iam"  // signed requests of principals with execute-api:Invoke
	AuthJWT  = "jwt"  // bearer tokens
	AuthNone = "none" // everybody on the internet
)

// Setting is one that can be made by `-c name=value`.
type Setting struct {
	Name string
	set  func(*Settings, string) error
}

const day = 24 * time.Hour

// AllSettings lists them. Their defaults are those of [DefaultSettings].
func AllSettings() []Setting {
	text := func(name string, at func(*Settings) *string) Setting {
		return Setting{name, func(s *Settings, v string) error { *at(s) = v; return nil }}
	}
	list := func(name string, at func(*Settings) *[]string) Setting {
		return Setting{name, func(s *Settings, v string) error { *at(s) = words(v); return nil }}
	}
	number := func(name string, at ...func(*Settings) *int) Setting {
		return Setting{name, func(s *Settings, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil {
				return fmt.Errorf("%s is %q; set a whole number", name, v)
			}
			for _, at := range at {
				*at(s) = n
			}
			return nil
		}}
	}
	duration := func(name string, unit time.Duration, at ...func(*Settings) *time.Duration) Setting {
		return Setting{name, func(s *Settings, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 || n > int(365*100*day/unit) {
				return fmt.Errorf("%s is %q; set a whole number, 0 or more", name, v)
			}
			for _, at := range at {
				*at(s) = time.Duration(n) * unit
			}
			return nil
		}}
	}
	return []Setting{
		text("stage", func(s *Settings) *string { return &s.Stage }),
		text("architecture", func(s *Settings) *string { return &s.Architecture }),
		text("auth", func(s *Settings) *string { return &s.Auth.Kind }),
		text("jwtIssuer", func(s *Settings) *string { return &s.Auth.Issuer }),
		list("jwtAudience", func(s *Settings) *[]string { return &s.Auth.Audience }),
		list("corsOrigins", func(s *Settings) *[]string { return &s.CORSOrigins }),
		number("ratePerSecond", func(s *Settings) *int { return &s.RatePerSecond }),
		number("burst", func(s *Settings) *int { return &s.Burst }),
		text("alarmEmail", func(s *Settings) *string { return &s.AlarmEmail }),
		number("workerMemoryMiB", func(s *Settings) *int { return &s.Topology.Worker.MemoryMiB }),
		duration("workerTimeoutSeconds", time.Second, func(s *Settings) *time.Duration { return &s.Topology.Worker.Timeout }),
		duration("visibilitySeconds", time.Second,
			func(s *Settings) *time.Duration { return &s.Topology.Tasks.Queue.Visibility },
			func(s *Settings) *time.Duration { return &s.Topology.Ordered.Queue.Visibility }),
		number("retries", func(s *Settings) *int { return &s.Topology.Retries }),
		number("maxReceiveCount",
			func(s *Settings) *int { return &s.Topology.Tasks.MaxReceiveCount },
			func(s *Settings) *int { return &s.Topology.Ordered.MaxReceiveCount }),
		number("batchSize", func(s *Settings) *int { return &s.Topology.Tasks.Mapping.BatchSize }),
		duration("batchingWindowSeconds", time.Second, func(s *Settings) *time.Duration { return &s.Topology.Tasks.Mapping.BatchingWindow }),
		number("orderedBatchSize", func(s *Settings) *int { return &s.Topology.Ordered.Mapping.BatchSize }),
		number("concurrency",
			func(s *Settings) *int { return &s.Topology.Tasks.Mapping.MaximumConcurrency },
			func(s *Settings) *int { return &s.Topology.Ordered.Mapping.MaximumConcurrency }),
		number("minimumPollers",
			func(s *Settings) *int { return &s.Topology.Tasks.Mapping.Pollers.Minimum },
			func(s *Settings) *int { return &s.Topology.Ordered.Mapping.Pollers.Minimum }),
		number("maximumPollers",
			func(s *Settings) *int { return &s.Topology.Tasks.Mapping.Pollers.Maximum },
			func(s *Settings) *int { return &s.Topology.Ordered.Mapping.Pollers.Maximum }),
		duration("queueRetentionDays", day,
			func(s *Settings) *time.Duration { return &s.Topology.Tasks.Queue.Retention },
			func(s *Settings) *time.Duration { return &s.Topology.Ordered.Queue.Retention }),
		duration("deadLetterRetentionDays", day,
			func(s *Settings) *time.Duration { return &s.Topology.Tasks.DeadLetter.Retention },
			func(s *Settings) *time.Duration { return &s.Topology.Ordered.DeadLetter.Retention }),
		duration("recordRetentionDays", day, func(s *Settings) *time.Duration { return &s.Topology.RecordRetention }),
		text("model", func(s *Settings) *string { return &s.Worker.Model }),
		duration("modelTimeoutSeconds", time.Second, func(s *Settings) *time.Duration { return &s.Worker.ModelTimeout }),
		number("maxTokensPerTask", func(s *Settings) *int { return &s.Worker.MaxTokensPerTask }),
		text("retriever", func(s *Settings) *string { return &s.Worker.Retriever }),
		text("openaiBaseUrl", func(s *Settings) *string { return &s.Worker.OpenAIBaseURL }),
		text("openaiKeySecret", func(s *Settings) *string { return &s.Worker.OpenAIKeySecret }),
		text("openaiKeyParameter", func(s *Settings) *string { return &s.Worker.OpenAIKeyParameter }),
		list("allowedTopics", func(s *Settings) *[]string { return &s.Worker.AllowedTopics }),
		number("logRetentionDays", func(s *Settings) *int { return &s.LogRetentionDays }),
	}
}

// DefaultSettings are those that hold unless somebody makes others.
func DefaultSettings() Settings {
	return Settings{
		Topology: topology.Default(), Stage: "dev", Architecture: "arm64", Auth: Auth{Kind: AuthIAM},
		RatePerSecond: 50, Burst: 100, LogRetentionDays: 30,
	}
}

// Context is what settings are read from; a construct's node is one.
type Context interface {
	TryGetContext(key *string) any
	GetAllContext(defaults *map[string]any) any
}

// ReadSettings reads and judges them. Its error is every problem at once: what cannot be read, what is no setting, and
// what does not go together.
func ReadSettings(c Context) (Settings, error) {
	s := DefaultSettings()
	s.unset = map[string]bool{}
	var problems []error
	known := map[string]bool{}
	for _, setting := range AllSettings() {
		known[setting.Name] = true
		value, made := c.TryGetContext(&setting.Name), true
		switch v := value.(type) {
		case nil:
			made = false
		case string:
			problems = append(problems, setting.set(&s, strings.TrimSpace(v)))
		case float64:
			problems = append(problems, setting.set(&s, strconv.FormatFloat(v, 'f', -1, 64)))
		default:
			problems = append(problems, fmt.Errorf("%s is %v; set a text or a number", setting.Name, v))
		}
		s.unset[setting.Name] = !made
	}
	problems = append(problems, strangers(c, known)...)
	s.derive()
	return s, errors.Join(append(problems, s.Validate())...)
}

// strangers are settings that do not exist: a misspelt one must not go unnoticed. Names with a sign in them belong to
// the CDK.
func strangers(c Context, known map[string]bool) []error {
	context, ok := c.GetAllContext(nil).(map[string]any)
	if !ok {
		return nil
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(context)) {
		if !known[name] && word.MatchString(name) {
			problems = append(problems, fmt.Errorf("there is no setting %s; the README lists them", name))
		}
	}
	return problems
}

var word = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// derive sets what follows from other settings unless it was set itself.
func (s *Settings) derive() {
	t := &s.Topology
	if s.unset["visibilitySeconds"] {
		for _, q := range []*topology.TaskQueue{&t.Tasks, &t.Ordered} {
			q.Queue.Visibility = topology.AdvisedVisibility(t.Worker.Timeout, q.Mapping.BatchingWindow)
		}
	}
	// Pollers exclude a maximum. One that nobody asked for gives way.
	for _, q := range []*topology.TaskQueue{&t.Tasks, &t.Ordered} {
		if q.Mapping.Pollers != (topology.Pollers{}) && s.unset["concurrency"] {
			q.Mapping.MaximumConcurrency = 0
		}
	}
	// The metrics of two stages must not add up.
	t.MetricsNamespace += "/" + s.Stage
	if s.BinDir == "" {
		s.BinDir = filepath.Join("..", "build", s.Architecture)
	}
}

// Validate reports every problem, each in a sentence that says what to change.
func (s Settings) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(stageName.MatchString(s.Stage), "stage is %q; set 1 to 20 lower-case letters, digits and hyphens, beginning with a letter and not ending in a hyphen", s.Stage)
	check(s.Architecture == "arm64" || s.Architecture == "amd64", "architecture is %q; set arm64 or amd64", s.Architecture)
	problems = append(problems, s.Auth.validate()...)
	for _, origin := range s.CORSOrigins {
		u, err := url.Parse(origin)
		check(err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") && origin == strings.ToLower(u.Scheme+"://"+u.Host) && !strings.Contains(origin, "*"),
			"corsOrigins has %q; set origins such as https://console.example.com", origin)
	}
	check(s.RatePerSecond >= 1 && s.RatePerSecond <= 10000, "ratePerSecond is %d; set 1 to 10,000", s.RatePerSecond)
	check(s.Burst >= 1 && s.Burst <= 5000, "burst is %d; set 1 to 5,000", s.Burst)
	if s.AlarmEmail != "" {
		a, err := mail.ParseAddress(s.AlarmEmail)
		check(err == nil && a.Address == s.AlarmEmail, "alarmEmail is %q; set an e-mail address", s.AlarmEmail)
	}
	check(slices.Contains(logRetentions, s.LogRetentionDays), "logRetentionDays is %d; set one of %v", s.LogRetentionDays, logRetentions)
	problems = append(problems, s.validateModel()...)
	for _, j := range s.Topology.Judge() {
		check(j.OK, "%s%s", j.Sentence, s.made(j))
	}
	return errors.Join(problems...)
}

// made says by which settings that is made which a rule of the topology is about.
func (s Settings) made(j topology.Judgement) string {
	switch j.Rule {
	case topology.RuleVisibility:
		return " (setting visibilitySeconds)"
	case topology.RuleReceiveCount:
		if j.Part == "" {
			return " (setting retries)"
		}
		return " (setting maxReceiveCount)"
	case topology.RuleRetention:
		return " (settings queueRetentionDays and deadLetterRetentionDays)"
	case topology.RuleConcurrency:
		return " (settings concurrency, minimumPollers and maximumPollers)"
	case topology.RuleBatch:
		if j.Part == s.Topology.Ordered.Name {
			return " (setting orderedBatchSize)"
		}
		return " (settings batchSize and batchingWindowSeconds)"
	case topology.RuleTimeout:
		return " (setting workerTimeoutSeconds)"
	case topology.RuleRecords:
		return " (setting recordRetentionDays)"
	case topology.RuleRange:
		return " (setting workerMemoryMiB)"
	}
	return ""
}

func (a Auth) validate() []error {
	var problems []error
	switch a.Kind {
	case AuthJWT:
		u, err := url.Parse(a.Issuer)
		if a.Issuer == "" || err != nil || u.Scheme != "https" || u.Host == "" {
			problems = append(problems, fmt.Errorf("auth is jwt and jwtIssuer is %q; set the https URL of who issues the tokens", a.Issuer))
		}
		if len(a.Audience) == 0 {
			problems = append(problems, errors.New("auth is jwt without jwtAudience; set whom the tokens are for, or tokens made for others are taken too"))
		}
	case AuthIAM, AuthNone:
		if a.Issuer != "" || len(a.Audience) > 0 {
			problems = append(problems, fmt.Errorf("jwtIssuer and jwtAudience are of no use with auth %s; set auth to jwt", a.Kind))
		}
	default:
		problems = append(problems, fmt.Errorf("auth is %q; set iam, jwt or none", a.Kind))
	}
	return problems
}

// CheckBinaries says which functions have not been built, and what the worker was built without that it is to use.
func (s Settings) CheckBinaries() error {
	var problems []error
	for _, f := range []topology.Function{s.Topology.Worker, s.Topology.Submit, s.Topology.DLQAlarm} {
		file := s.binary(f)
		if _, err := os.Stat(file); err != nil {
			problems = append(problems, fmt.Errorf("%s is not there; run make build ARCH=%s", file, s.Architecture))
		}
	}
	if missing := s.missingParts(); len(missing) > 0 {
		problems = append(problems, fmt.Errorf("%s was built without %s; run make build ARCH=%s WORKER_TAGS=%s", s.binary(s.Topology.Worker),
			strings.Join(missing, ", "), s.Architecture, strings.Join(append([]string{"slim"}, s.Worker.Parts()...), ",")))
	}
	return errors.Join(problems...)
}

func (s Settings) binary(f topology.Function) string {
	return filepath.Join(s.BinDir, f.Name, "bootstrap")
}

// missingParts compares what the worker takes with the tags that are written in its binary. Of a binary that Go has not built
// there is nothing to know.
func (s Settings) missingParts() []string {
	info, err := buildinfo.ReadFile(s.binary(s.Topology.Worker))
	if err != nil {
		return nil
	}
	var tags []string
	for _, setting := range info.Settings {
		if setting.Key == "-tags" {
			tags = strings.Split(setting.Value, ",")
		}
	}
	if !slices.Contains(tags, "slim") {
		return nil
	}
	return slices.DeleteFunc(s.Worker.Parts(), func(part string) bool { return slices.Contains(tags, part) })
}

var stageName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$`)

// Source: Amazon CloudWatch Logs API Reference, "PutRetentionPolicy".
var logRetentions = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
