package doctor

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Policy is a resource policy. The zero value has no statements.
// Source: AWS Identity and Access Management User Guide, "IAM JSON policy elements reference".
type Policy struct{ Statements []Statement }

// Statement of a policy, as far as it is judged.
type Statement struct {
	Effect     string
	Principals []string // services, ARNs or *
	Actions    []string
	// Conditions are the operator, the key in lower case and a value.
	Conditions []Condition
}

// Condition is one value that a condition of a statement allows.
type Condition struct{ Operator, Key, Value string }

// texts is a string, a boolean or a list of them.
type texts []string

func (t *texts) UnmarshalJSON(raw []byte) error {
	var list []jsontext.Value
	if jsontext.Value(raw).Kind() != '[' {
		list = []jsontext.Value{raw}
	} else if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, v := range list {
		*t = append(*t, strings.Trim(string(v), `"`))
	}
	return nil
}

// principals are {"Service": …, "AWS": …} or "*".
type principals []string

func (p *principals) UnmarshalJSON(raw []byte) error {
	if jsontext.Value(raw).Kind() == '"' {
		*p = principals{strings.Trim(string(raw), `"`)}
		return nil
	}
	var kinds map[string]texts
	if err := json.Unmarshal(raw, &kinds); err != nil {
		return err
	}
	for _, names := range kinds {
		*p = append(*p, names...)
	}
	return nil
}

// oneOrMore is a statement or a list of statements.
type oneOrMore []wireStatement

func (l *oneOrMore) UnmarshalJSON(raw []byte) error {
	if jsontext.Value(raw).Kind() == '[' {
		return json.Unmarshal(raw, (*[]wireStatement)(l))
	}
	var one wireStatement
	if err := json.Unmarshal(raw, &one); err != nil {
		return err
	}
	*l = oneOrMore{one}
	return nil
}

type wireStatement struct {
	Effect    string
	Principal principals
	Action    texts
	Condition map[string]map[string]texts
}

// ParsePolicy reads a policy document; "" is the one without statements.
func ParsePolicy(document string) (Policy, error) {
	if document == "" {
		return Policy{}, nil
	}
	var wire struct{ Statement oneOrMore }
	if err := json.Unmarshal([]byte(document), &wire); err != nil {
		return Policy{}, err
	}
	var p Policy
	for _, w := range wire.Statement {
		s := Statement{Effect: w.Effect, Principals: w.Principal, Actions: w.Action}
		for operator, keys := range w.Condition {
			for key, values := range keys {
				for _, v := range values {
					s.Conditions = append(s.Conditions, Condition{operator, strings.ToLower(key), v})
				}
			}
		}
		p.Statements = append(p.Statements, s)
	}
	return p, nil
}

// TLSOnly tells whether everybody is refused who does not use TLS.
func (p Policy) TLSOnly() bool {
	return slices.ContainsFunc(p.Statements, func(s Statement) bool {
		return s.Effect == "Deny" && slices.Contains(s.Principals, "*") &&
			slices.Contains(s.Conditions, Condition{"Bool", "aws:securetransport", "false"})
	})
}

// Lets tells whether a service may do something on behalf of a resource. A statement for everybody counts for what
// belongs to the same account, as a topic's default policy has it. The resource is "" when it is not known.
func (p Policy) Lets(service, action, sourceARN string) bool {
	return slices.ContainsFunc(p.Statements, func(s Statement) bool {
		if s.Effect != "Allow" || !slices.ContainsFunc(s.Actions, func(a string) bool { return like(strings.ToLower(a), strings.ToLower(action)) }) {
			return false
		}
		return slices.Contains(s.Principals, service) && s.concerns(sourceARN) || slices.Contains(s.Principals, "*")
	})
}

// concerns tells whether the statement's conditions let a resource pass that stands behind the call.
func (s Statement) concerns(sourceARN string) bool {
	var allowed []string
	for _, c := range s.Conditions {
		if c.Key == "aws:sourcearn" {
			allowed = append(allowed, c.Value)
		}
	}
	return len(allowed) == 0 || sourceARN == "" || slices.ContainsFunc(allowed, func(pattern string) bool { return like(pattern, sourceARN) })
}

// like matches a pattern in which * stands for any text, as in ArnLike and in actions.
func like(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}
