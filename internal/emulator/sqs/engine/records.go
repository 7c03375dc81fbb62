package engine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"
)

// Stored forms. Times are nanoseconds since 1970, 0 for none.
type (
	storedQueue struct {
		Name       string            `json:"name"`
		Created    int64             `json:"created"`
		Modified   int64             `json:"modified"`
		Purged     int64             `json:"purged,omitzero"`
		Attributes map[string]string `json:"attributes"`
		Tags       map[string]string `json:"tags"`
	}
	storedContent struct {
		ID           string               `json:"id"`
		Body         string               `json:"body"`
		Attributes   map[string]Attribute `json:"attributes,omitzero"`
		Trace        string               `json:"trace,omitzero"`
		Group        string               `json:"group,omitzero"`
		Dedup        string               `json:"dedup,omitzero"`
		Sequence     string               `json:"sequence,omitzero"`
		Sender       string               `json:"sender,omitzero"`
		Source       string               `json:"source,omitzero"`
		SentAt       int64                `json:"sentAt"`
		RetainedFrom int64                `json:"retainedFrom"`
	}
	storedState struct {
		InFlight      bool  `json:"inFlight,omitzero"`
		VisibleAt     int64 `json:"visibleAt"`
		Receives      int   `json:"receives,omitzero"`
		FirstReceived int64 `json:"firstReceived,omitzero"`
		LastReceived  int64 `json:"lastReceived,omitzero"`
	}
	storedDuplicate struct {
		MessageID string `json:"messageId"`
		Sequence  string `json:"sequence"`
		At        int64  `json:"at"`
	}
	storedTask struct {
		Number  uint64 `json:"number,omitzero"`
		Source  string `json:"source"`
		Dest    string `json:"dest,omitzero"`
		Rate    int    `json:"rate,omitzero"`
		Status  string `json:"status"`
		Failure string `json:"failure,omitzero"`
		Moved   int    `json:"moved"`
		ToMove  int    `json:"toMove"`
		Started int64  `json:"started"`
		NextAt  int64  `json:"nextAt"`
	}
)

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func queueRecord(q *queue) storedQueue {
	return storedQueue{q.name, nanos(q.created), nanos(q.modified), nanos(q.purged), q.attrs, q.tags}
}

func contentRecord(m *message) storedContent {
	return storedContent{
		m.id, m.body, m.attrs, m.trace, m.group, m.dedup, m.sequence, m.sender, m.source,
		nanos(m.sentAt), nanos(m.retainedFrom),
	}
}

func stateRecord(m *message) storedState {
	return storedState{
		m.state == inFlight, nanos(m.visibleAt), m.receives, nanos(m.firstReceived), nanos(m.lastReceived),
	}
}

func duplicateRecord(d *duplicate) storedDuplicate {
	return storedDuplicate{d.sent.MessageID, d.sent.SequenceNumber, nanos(d.at)}
}

func taskRecord(t *task) storedTask {
	return storedTask{t.number, t.source, t.dest, t.rate, t.status, t.failure, t.moved, t.toMove, nanos(t.started), nanos(t.nextAt)}
}

// load builds the queues from what the store holds. Delays and visibility timeouts that have ended
// in the meantime end at the first operation, as they would have without a restart.
func (e *Engine) load(s *store) error {
	return s.db.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyLast)); len(b) == 8 {
			e.last = binary.BigEndian.Uint64(b)
		}
		byID := map[uint64]*queue{}
		for _, read := range []func(*bolt.Tx, map[uint64]*queue) error{
			e.loadQueues, e.loadMessages, e.loadDuplicates, e.loadTasks,
		} {
			if err := read(tx, byID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Engine) loadQueues(tx *bolt.Tx, byID map[uint64]*queue) error {
	return tx.Bucket([]byte(bucketQueues)).ForEach(func(k, v []byte) error {
		var r storedQueue
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("queue record %x: %w", k, err)
		}
		q := newQueue(binary.BigEndian.Uint64(k), r.Name, e.arn(r.Name))
		q.created, q.modified, q.purged = moment(r.Created), moment(r.Modified), moment(r.Purged)
		q.attrs, q.tags, q.cfg = r.Attributes, r.Tags, configure(r.Attributes)
		e.queues[r.Name], byID[q.id] = q, q
		return nil
	})
}

func (e *Engine) loadMessages(tx *bolt.Tx, byID map[uint64]*queue) error {
	states := tx.Bucket([]byte(bucketStates))
	return tx.Bucket([]byte(bucketContents)).ForEach(func(k, v []byte) error {
		var r storedContent
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("message record %x: %w", k, err)
		}
		var st storedState
		if err := json.Unmarshal(states.Get(k), &st); err != nil {
			return fmt.Errorf("state record %x: %w", k, err)
		}
		q := byID[binary.BigEndian.Uint64(k)]
		if q == nil {
			return fmt.Errorf("message record %x belongs to no queue", k)
		}
		m := newMessage()
		m.position = binary.BigEndian.Uint64(k[8:])
		m.id, m.body, m.attrs, m.trace = r.ID, r.Body, r.Attributes, r.Trace
		m.group, m.dedup, m.sequence, m.sender, m.source = r.Group, r.Dedup, r.Sequence, r.Sender, r.Source
		m.sentAt, m.retainedFrom = moment(r.SentAt), moment(r.RetainedFrom)
		m.visibleAt, m.receives = moment(st.VisibleAt), st.Receives
		m.firstReceived, m.lastReceived = moment(st.FirstReceived), moment(st.LastReceived)
		as := delayed
		if st.InFlight {
			as = inFlight
		}
		q.insert(m, as)
		return nil
	})
}

func (e *Engine) loadDuplicates(tx *bolt.Tx, byID map[uint64]*queue) error {
	var all []*duplicate
	owner := map[*duplicate]*queue{}
	err := tx.Bucket([]byte(bucketDedup)).ForEach(func(k, v []byte) error {
		var r storedDuplicate
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("deduplication record %x: %w", k, err)
		}
		q := byID[binary.BigEndian.Uint64(k)]
		if q == nil {
			return fmt.Errorf("deduplication record %x belongs to no queue", k)
		}
		d := &duplicate{key: string(k[8:]), sent: Sent{r.MessageID, r.Sequence}, at: moment(r.At)}
		all, owner[d] = append(all, d), q
		return nil
	})
	slices.SortFunc(all, func(a, b *duplicate) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.sent.SequenceNumber, b.sent.SequenceNumber))
	})
	for _, d := range all {
		owner[d].dedup[d.key] = d
		owner[d].dedupOrder.PushBack(d)
	}
	return err
}

func (e *Engine) loadTasks(tx *bolt.Tx, _ map[uint64]*queue) error {
	err := tx.Bucket([]byte(bucketTasks)).ForEach(func(k, v []byte) error {
		var r storedTask
		if err := json.Unmarshal(v, &r); err != nil {
			return fmt.Errorf("task record %s: %w", k, err)
		}
		e.tasks = append(e.tasks, &task{
			id: string(k), number: r.Number, source: r.Source, dest: r.Dest, rate: r.Rate, status: r.Status, failure: r.Failure,
			moved: r.Moved, toMove: r.ToMove, started: moment(r.Started), nextAt: moment(r.NextAt),
		})
		return nil
	})
	slices.SortFunc(e.tasks, func(a, b *task) int { return cmp.Compare(a.number, b.number) })
	return err
}
