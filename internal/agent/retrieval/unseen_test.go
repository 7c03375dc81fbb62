package retrieval_test

import (
	"slices"
	"strings"
	"testing"

	"agentworker/internal/agent/retrieval"
)

// By these questions nothing was tuned: they were written first, and tell what others may expect.
var unseen = []struct{ query, want string }{ // want: "document passage" of the best, or of either
	{"How does a node in LangGraph change the state?", "langgraph 2"},
	{"Can a graph wait for human approval?", "langgraph 4"},
	{"Where can checkpoints be stored?", "langgraph-checkpoints 4"},
	{"How do I go back to an earlier state of a thread?", "langgraph-checkpoints 3"},
	{"Why are documents cut into short passages?", "rag 2"},
	{"What does hybrid search combine?", "rag 3"},
	{"What is a hallucination?", "rag 4"},
	{"How long are messages kept in a queue by default?", "sqs-standard 4"},
	{"What does long polling do?", "sqs-standard 3"},
	{"Do FIFO queues drop duplicates?", "sqs-fifo 3"},
	{"Which kind of dead-letter queue does a FIFO queue need?", "sqs-fifo 4"},
	{"How can I extend the time for slow work?", "visibility-timeout 3"},
	{"What visibility timeout should I set for a Lambda function?", "visibility-timeout 4"},
	{"How do I move messages out of the DLQ again?", "dead-letter-queues 3"},
	{"How many items can a DynamoDB transaction write?", "dynamodb-locking 3"},
	{"What does a fencing token protect against?", "idempotency 3"},
	{"What is the difference between short-term and long-term memory?", "agents 4"},
	{"Should tool arguments be validated?", "agents 2"},
	{"工具的参数需要校验吗？", "agents.zh 2"},
	{"死信消息怎么移回原队列？", "dead-letter-queues.zh 3"},
	{"ConditionalCheckFailedException 应该怎么处理？", "dynamodb-locking.zh 2"},
	{"批次中只有一条消息失败，会全部重试吗？", "lambda-idempotency.zh 1"},
	{"进程崩溃以后如何恢复？", "langgraph-checkpoints.zh 1"},
	{"thread_id 有什么作用？", "langgraph-checkpoints.zh 2, langgraph-checkpoints 2"},
	{"LangGraph 的条件边是做什么的？", "langgraph.zh 3"},
	{"为什么要把文档切分成段落？", "rag.zh 2"},
	{"什么叫幻觉？", "rag.zh 3"},
	{"先进先出队列能并行处理吗？", "sqs.zh 2"},
	{"FIFO 队列多长时间内会去重？", "sqs.zh 3"},
	{"Lambda 的可见性超时至少是函数超时的几倍？", "visibility-timeout.zh 3"},
}

var unseenElsewhere = []string{
	"How tall is Mount Everest?",
	"Which queue is shortest at the airport?",
	"What is the best time to visit Japan?",
	"How do I delete my Facebook account?",
	"What are good tools for gardening?",
	"Can I return a dress after two weeks?",
	"What is Kubernetes?",
	"How do I tune a guitar?",
	"Recommend a book about memory",
	"Qu'est-ce que la photosynthèse ?",
	"明天的会议几点开始？",
	"如何学习弹钢琴？",
	"附近有什么好吃的餐厅？",
	"苹果手机多少钱",
	"什么是量子计算？",
	"图书馆几点关门",
	"怎么给花浇水",
	"火车票可以退吗？",
	"最好的编程语言是哪个？",
	"東京の天気はどうですか",
}

// unseenRight is how many of them find the right passage first. More is welcome; fewer is a loss to users.
const unseenRight = 25

func TestUnseenQuestions(t *testing.T) {
	t.Parallel()
	builtin := retrieval.Builtin()
	right := 0
	for _, tt := range unseen {
		got := names(retrieve(t, builtin, tt.query, 3))
		if len(got) > 0 && slices.Contains(strings.Split(tt.want, ", "), got[0]) {
			right++
			continue
		}
		t.Logf("Retrieve(%q): got %q, want %q first", tt.query, got, tt.want)
	}
	if right < unseenRight {
		t.Errorf("%d of %d questions find the right passage first, want at least %d", right, len(unseen), unseenRight)
	}
}

func TestUnseenUnrelatedQuestionsFindNothing(t *testing.T) {
	t.Parallel()
	builtin := retrieval.Builtin()
	for _, query := range unseenElsewhere {
		if got := retrieve(t, builtin, query, 3); len(got) != 0 {
			t.Errorf("Retrieve(%q): got %q, want nothing", query, names(got))
		}
	}
}
