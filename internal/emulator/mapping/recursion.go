package mapping

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"agentworker/internal/emulator/lambda"
)

// maxHops is how many invocations one chain of messages may cause before Lambda takes it for a loop.
// Source: AWS Lambda Developer Guide, "Use Lambda recursive loop detection to prevent infinite loops".
const maxHops = 16

// Lambda counts in the Lineage field of the tracing header, which the SDK in the function hands on with what it sends.
const lineage = "Lineage="

// withoutLoops holds back the messages at the end of a chain that is too long, with what follows in the group if the order
// counts. They are not deleted: SQS dead-letters them.
func withoutLoops(batch []message, ordered bool) (good, dropped []message) {
	held := map[string]bool{}
	for _, msg := range batch {
		if hops(msg.trace) >= maxHops || (ordered && held[msg.group]) {
			held[msg.group] = true
			dropped = append(dropped, msg)
		} else {
			good = append(good, msg)
		}
	}
	return good, dropped
}

func hops(trace string) int {
	for field := range strings.SplitSeq(trace, ";") {
		if value, found := strings.CutPrefix(field, lineage); found {
			count, err := strconv.Atoi(value[strings.LastIndexByte(value, ':')+1:])
			if err == nil {
				return count
			}
		}
	}
	return 0
}

// nextHop is the tracing header of the invocation: that of the message that has come furthest, one hop on.
func nextHop(batch []message) string {
	furthest := batch[0]
	for _, msg := range batch {
		if hops(msg.trace) > hops(furthest.trace) {
			furthest = msg
		}
	}
	trace := furthest.trace
	if trace == "" {
		trace = lambda.NewTrace(time.Now())
	}
	var fields []string
	for field := range strings.SplitSeq(trace, ";") {
		if !strings.HasPrefix(field, lineage) {
			fields = append(fields, field)
		}
	}
	chain := fnv.New32a()
	_, _ = chain.Write([]byte(fields[0]))
	return fmt.Sprintf("%s;%s1:%08x:%d", strings.Join(fields, ";"), lineage, chain.Sum32(), hops(furthest.trace)+1)
}
