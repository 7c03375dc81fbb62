package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The buckets. Messages are split in two: their content is written once, their state at every receive.
const (
	bucketQueues   = "queues"   // queue id
	bucketContents = "contents" // queue id, position
	bucketStates   = "states"   // queue id, position
	bucketDedup    = "dedup"    // queue id, key
	bucketTasks    = "tasks"    // task id
	bucketMeta     = "meta"     // keyLast
)

const keyLast = "last"

// store writes what the engine changes. The engine hands over an operation's changes under its lock; one
// goroutine writes all that came together in one transaction, and an operation is answered after that.
// No operation is divided over two transactions: a kill between them would lose a message that moves from
// one queue to another.
//
// The file is not synced: a write that the kernel has taken outlives the process, however it is
// killed, and bbolt never overwrites pages that the last complete transaction uses, so that a kill
// between two writes leaves that one in place. Only a crash of the machine can lose data.
//
// All methods that record changes do nothing on a nil store, which is how an engine in memory works.
type store struct {
	db        *bolt.DB
	operation []change // under way; the engine's lock guards it

	mu      sync.Mutex
	pending *batch // collects changes
	written *batch // newest one that has changes
	kick    chan struct{}
	stop    chan struct{}
	done    chan struct{}
	failed  error
}

type batch struct {
	changes []change
	done    chan struct{}
	err     error
}

type change struct {
	bucket string
	key    []byte
	value  []byte // nil deletes
	prefix bool   // delete every key that begins with key
}

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	db, err := bolt.Open(filepath.Join(dir, "sqs.db"), 0o600, &bolt.Options{
		Timeout: time.Second, NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("another process uses it: %w", err)
	}
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{bucketQueues, bucketContents, bucketStates, bucketDedup, bucketTasks, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("prepare: %w", err)
	}
	s := &store{
		db: db, kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		pending: &batch{done: make(chan struct{})},
	}
	go s.write()
	return s, nil
}

// close writes what is left and closes the file.
func (s *store) close() error {
	close(s.stop)
	<-s.done
	return errors.Join(s.failed, s.db.Close())
}

func (s *store) write() {
	defer close(s.done)
	for {
		select {
		case <-s.kick:
			s.flush()
		case <-s.stop:
			s.flush()
			return
		}
	}
}

func (s *store) flush() {
	s.mu.Lock()
	b := s.pending
	if len(b.changes) == 0 {
		s.mu.Unlock()
		return
	}
	s.pending = &batch{done: make(chan struct{})}
	failed := s.failed
	s.mu.Unlock()

	// After a failed write memory is ahead of the file; going on would acknowledge what is not there.
	b.err = failed
	if failed == nil {
		b.err = s.db.Update(func(tx *bolt.Tx) error { return apply(tx, b.changes) })
	}
	if b.err != nil {
		s.mu.Lock()
		s.failed = b.err
		s.mu.Unlock()
	}
	b.changes = nil
	close(b.done)
}

func apply(tx *bolt.Tx, changes []change) error {
	for _, c := range changes {
		bucket := tx.Bucket([]byte(c.bucket))
		var err error
		switch {
		case c.prefix:
			err = deletePrefix(bucket, c.key)
		case c.value == nil:
			err = bucket.Delete(c.key)
		default:
			err = bucket.Put(c.key, c.value)
		}
		if err != nil {
			return fmt.Errorf("write to %s: %w", c.bucket, err)
		}
	}
	return nil
}

// deletePrefix collects the keys first: a cursor does not survive deletes.
func deletePrefix(bucket *bolt.Bucket, prefix []byte) error {
	var keys [][]byte
	c := bucket.Cursor()
	for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := bucket.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// commit hands the operation's changes over and returns the batch that the newest change went into.
func (s *store) commit() *batch {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.operation) > 0 {
		s.pending.changes = append(s.pending.changes, s.operation...)
		s.written, s.operation = s.pending, nil
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	return s.written
}

// wait returns when the batch is in the file.
func (b *batch) wait() error {
	if b == nil {
		return nil
	}
	<-b.done
	return b.err
}

func (s *store) record(changes ...change) { s.operation = append(s.operation, changes...) }

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func messageKey(q *queue, m *message) []byte {
	return binary.BigEndian.AppendUint64(number(q.id), m.position)
}

func dedupKey(q *queue, d *duplicate) []byte { return append(number(q.id), d.key...) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("engine: encode %T: %v", v, err)) // plain structs of valid strings always encode
	}
	return b
}

// lastID goes along with everything that took a new id, so that no id is given out twice.
func lastID(e *Engine) change {
	return change{bucket: bucketMeta, key: []byte(keyLast), value: number(e.last)}
}

func (s *store) putQueue(e *Engine, q *queue) {
	if s != nil {
		s.record(change{bucket: bucketQueues, key: number(q.id), value: encode(queueRecord(q))}, lastID(e))
	}
}

func (s *store) deleteQueue(q *queue) {
	if s != nil {
		id := number(q.id)
		s.record(change{bucket: bucketQueues, key: id},
			change{bucket: bucketContents, key: id, prefix: true}, change{bucket: bucketStates, key: id, prefix: true},
			change{bucket: bucketDedup, key: id, prefix: true})
	}
}

func (s *store) purgeQueue(e *Engine, q *queue) {
	if s != nil {
		id := number(q.id)
		s.putQueue(e, q)
		s.record(change{bucket: bucketContents, key: id, prefix: true}, change{bucket: bucketStates, key: id, prefix: true})
	}
}

func (s *store) putMessage(e *Engine, q *queue, m *message) {
	if s != nil {
		key := messageKey(q, m)
		s.record(change{bucket: bucketContents, key: key, value: encode(contentRecord(m))},
			change{bucket: bucketStates, key: key, value: encode(stateRecord(m))}, lastID(e))
	}
}

func (s *store) putState(q *queue, m *message) {
	if s != nil {
		s.record(change{bucket: bucketStates, key: messageKey(q, m), value: encode(stateRecord(m))})
	}
}

func (s *store) deleteMessage(q *queue, m *message) {
	if s != nil {
		key := messageKey(q, m)
		s.record(change{bucket: bucketContents, key: key}, change{bucket: bucketStates, key: key})
	}
}

func (s *store) putDuplicate(q *queue, d *duplicate) {
	if s != nil {
		s.record(change{bucket: bucketDedup, key: dedupKey(q, d), value: encode(duplicateRecord(d))})
	}
}

func (s *store) deleteDuplicate(q *queue, d *duplicate) {
	if s != nil {
		s.record(change{bucket: bucketDedup, key: dedupKey(q, d)})
	}
}

func (s *store) putTask(e *Engine, t *task) {
	if s != nil {
		s.record(change{bucket: bucketTasks, key: []byte(t.id), value: encode(taskRecord(t))}, lastID(e))
	}
}

func (s *store) deleteTask(t *task) {
	if s != nil {
		s.record(change{bucket: bucketTasks, key: []byte(t.id)})
	}
}
