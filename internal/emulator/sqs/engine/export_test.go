package engine

import bolt "go.etcd.io/bbolt"

// Stored counts the messages in the file at this moment, which are those that a kill would leave.
func Stored(e *Engine) (n int, err error) {
	err = e.store.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketContents)).ForEach(func(_, _ []byte) error {
			n++
			return nil
		})
	})
	return n, err
}

// Remembered counts what is kept of queues that are gone, and the move tasks.
func Remembered(e *Engine) (names, tasks int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.deleted), len(e.tasks)
}
