package control

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/smithy-go/encoding/cbor"
	"github.com/google/uuid"

	"agentworker/internal/emulator/alarm"
)

// How a request is known to be for CloudWatch: by the path in CBOR, by X-Amz-Target in JSON.
// Source: Smithy specification, "Smithy RPC v2 CBOR protocol".
const (
	CloudWatchPath   = "/service/GraniteServiceVersion20100801/operation/"
	CloudWatchTarget = "GraniteServiceVersion20100801."
)

// AgeMetric is the one metric that there is besides the alarms' own.
// Source: Amazon SQS Developer Guide, "Available CloudWatch metrics for Amazon SQS".
const AgeMetric = "ApproximateAgeOfOldestMessage"

// CloudWatch answers CloudWatch's calls.
func (p *Plane) CloudWatch() http.Handler { return http.HandlerFunc(p.serveCloudWatch) }

func (p *Plane) serveCloudWatch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	name, inCBOR := strings.CutPrefix(r.URL.Path, CloudWatchPath)
	if !inCBOR {
		name = strings.TrimPrefix(r.Header.Get("X-Amz-Target"), CloudWatchTarget)
	}
	in := cbor.Map{}
	if err == nil && inCBOR {
		in, err = fromCBOR(body)
	} else if err == nil {
		in, err = fromJSON(body)
	}
	var answer cbor.Map
	bad := refuse(http.StatusBadRequest, "SerializationException", "The request could not be read")
	if err == nil {
		answer, bad = p.cloudWatch(name, in)
	}
	if inCBOR {
		writeCBOR(w, answer, bad)
		return
	}
	const contentType = "application/x-amz-json-1.0"
	if bad != nil {
		writeFault(w, contentType, bad)
		return
	}
	writeJSON(w, contentType, http.StatusOK, toJSON(answer))
}

func fromCBOR(body []byte) (cbor.Map, error) {
	if len(body) == 0 {
		return cbor.Map{}, nil
	}
	v, err := cbor.Decode(body)
	m, _ := v.(cbor.Map)
	return m, err
}

func writeCBOR(w http.ResponseWriter, answer cbor.Map, bad *fault) {
	status := http.StatusOK
	if bad != nil {
		status, answer = bad.status, cbor.Map{"__type": cbor.String(bad.code), "message": cbor.String(bad.message)}
	}
	w.Header().Set("Content-Type", "application/cbor")
	w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
	w.Header().Set("X-Amzn-Requestid", uuid.NewString())
	w.WriteHeader(status)
	_, _ = w.Write(cbor.Encode(answer)) //nolint:gosec // binary, and no browser gets here; an error: the caller is gone
}

// cloudWatch makes one call. Source: Amazon CloudWatch API Reference, the pages of the calls.
func (p *Plane) cloudWatch(name string, in cbor.Map) (cbor.Map, *fault) {
	switch name {
	case "DescribeAlarms":
		return p.describeAlarms(in), nil
	case "EnableAlarmActions", "DisableAlarmActions":
		return p.changeAlarms(in, func(a *alarm.Alarm) { a.EnableActions(name == "EnableAlarmActions") }), nil
	case "DeleteAlarms":
		return p.changeAlarms(in, (*alarm.Alarm).Delete), nil
	case "GetMetricStatistics":
		return p.metricStatistics(in)
	}
	return nil, refuse(http.StatusBadRequest, "UnknownOperationException", "There is no "+name+
		" here: served are DescribeAlarms, EnableAlarmActions, DisableAlarmActions, DeleteAlarms and GetMetricStatistics")
}

func (p *Plane) describeAlarms(in cbor.Map) cbor.Map {
	names, some := textsOf(in, "AlarmNames")
	prefix, state := textOf(in, "AlarmNamePrefix"), textOf(in, "StateValue")
	list := cbor.List{}
	for _, a := range p.config.Alarms {
		d, ok := a.Describe()
		if !ok || some && !slices.Contains(names, d.Name) || !strings.HasPrefix(d.Name, prefix) || state != "" && state != string(d.State) {
			continue
		}
		list = append(list, cbor.Map{
			"AlarmName": cbor.String(d.Name), "AlarmArn": cbor.String(d.ARN), "AlarmDescription": cbor.String(d.Description),
			"ActionsEnabled": cbor.Bool(d.ActionsEnabled), "AlarmActions": stringList(d.AlarmActionARNs),
			"OKActions": cbor.List{}, "InsufficientDataActions": cbor.List{},
			"StateValue": cbor.String(string(d.State)), "StateReason": cbor.String(d.StateReason), "StateUpdatedTimestamp": timeValue(d.StateSince),
			"Namespace": cbor.String("AWS/SQS"), "MetricName": cbor.String(alarm.DepthMetric), "Statistic": cbor.String(d.Statistic),
			"Dimensions": cbor.List{cbor.Map{"Name": cbor.String("QueueName"), "Value": cbor.String(d.QueueName)}},
			"Period":     cbor.Uint(max(1, d.Period/time.Second)), "EvaluationPeriods": cbor.Uint(1),
			"Threshold": cbor.Float64(d.Threshold), "ComparisonOperator": cbor.String("GreaterThanOrEqualToThreshold"),
			"TreatMissingData": cbor.String("notBreaching"),
		})
	}
	return cbor.Map{"MetricAlarms": list, "CompositeAlarms": cbor.List{}}
}

// changeAlarms changes those that the request names. An unknown name is passed over, as CloudWatch does for the actions.
func (p *Plane) changeAlarms(in cbor.Map, change func(*alarm.Alarm)) cbor.Map {
	names, _ := textsOf(in, "AlarmNames")
	for _, a := range p.config.Alarms {
		if d, ok := a.Describe(); ok && slices.Contains(names, d.Name) {
			change(a)
		}
	}
	return cbor.Map{}
}

// metricStatistics knows the present age of a queue's oldest message, and nothing of the past.
func (p *Plane) metricStatistics(in cbor.Map) (cbor.Map, *fault) {
	answer := cbor.Map{"Label": cbor.String(textOf(in, "MetricName")), "Datapoints": cbor.List{}}
	if p.config.OldestMessage == nil || textOf(in, "Namespace") != "AWS/SQS" || textOf(in, "MetricName") != AgeMetric {
		return answer, nil
	}
	dimensions, _ := in["Dimensions"].(cbor.List)
	if len(dimensions) != 1 {
		return nil, refuse(http.StatusBadRequest, "InvalidParameterValue", "the dimension of "+AgeMetric+" is QueueName")
	}
	dimension, _ := dimensions[0].(cbor.Map)
	age, ok := p.config.OldestMessage(textOf(dimension, "Value"))
	if !ok {
		return answer, nil
	}
	seconds := cbor.Float64(age.Truncate(time.Second).Seconds())
	point := cbor.Map{"Timestamp": timeValue(time.Now().Truncate(time.Minute)), "Unit": cbor.String("Seconds")}
	statistics, _ := textsOf(in, "Statistics")
	for _, statistic := range statistics {
		point[statistic] = seconds
	}
	answer["Datapoints"] = cbor.List{point}
	return answer, nil
}
