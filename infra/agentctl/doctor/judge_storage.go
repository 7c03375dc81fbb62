package doctor

import (
	"cmp"
	"slices"
)

// ttlAttribute is what the store writes into its items.
const ttlAttribute = "expires_at"

func (s State) judgeTable(e *examination) {
	t := s.Table
	if t == nil {
		return
	}
	e.check(Presence, t.Name, t.Status == "ACTIVE" || t.Status == "UPDATING", "%s: the table's status is %s", t.Name, t.Status)
	if t.TTLRead {
		e.check(TTL, t.Name, t.TTL == ttlAttribute, "%s: time to live is %s, and items expire by %s: nothing is ever removed", t.Name, cmp.Or(t.TTL, "off"), ttlAttribute)
	}
	if t.Recovery != nil {
		e.check(Recovery, t.Name, *t.Recovery, "%s: point-in-time recovery is off: what is overwritten by mistake is gone", t.Name)
	}
	e.check(Protection, t.Name, t.Protected, "%s: deletion protection is off", t.Name)
}

// managedKey is AWS's own key for SNS, which lets no alarm use it.
// Source: Amazon CloudWatch User Guide, "Notifying users on alarm changes".
const managedKey = "alias/aws/sns"

func (s State) judgeTopic(e *examination) {
	t := s.Topic
	if t == nil {
		return
	}
	e.check(Presence, t.ARN, true, "")
	publishers := []string{}
	for _, a := range s.Alarms {
		if slices.Contains(a.Actions, t.ARN) {
			publishers = append(publishers, a.ARN)
		}
	}
	if len(publishers) == 0 {
		publishers = append(publishers, "") // any
	}
	for _, arn := range publishers {
		e.check(TopicPolicy, t.ARN, t.Policy.Lets("cloudwatch.amazonaws.com", "sns:Publish", arn), "%s: the topic's policy does not let alarms publish to it: %s", t.ARN, cmp.Or(arn, "any"))
	}
	e.check(TopicKey, t.ARN, t.Key != managedKey, "%s: the topic is encrypted with %s, which alarms may not use: they would not be heard", t.ARN, t.Key)
	e.check(Subscribers, t.ARN, t.Subscriptions > 0, "%s: the topic has no confirmed subscription: nobody hears of dead letters and alarms", t.ARN)
	if !s.Plain {
		e.check(TLS, t.ARN, t.Policy.TLSOnly(), "%s: the topic's policy does not refuse requests without TLS", t.ARN)
	}
}
