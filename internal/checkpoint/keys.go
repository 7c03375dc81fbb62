package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"agentworker/internal/task"
)

const (
	checkpointPrefix = "checkpoint#"
	dataPrefix       = "data#"
	historyPrefix    = "history#"
	resultKey        = "result"
	ticketKey        = "state"
	idempotencyKey   = "key"
)

func threadPK(thread string) string { return "thread#" + thread }
func ticketPK(id string) string     { return "ticket#" + id }
func keyPK(hash string) string      { return "key#" + hash }

func historySK(id task.ID) string { return historyPrefix + id.ULID() }

// The numbers have 20 digits, all that a uint64 can have, so that they sort as text.
func checkpointSK(n uint64) string  { return fmt.Sprintf("%s%020d", checkpointPrefix, n) }
func dataSK(n uint64, i int) string { return fmt.Sprintf("%s%020d#%02d", dataPrefix, n, i) }

func checkpointNumber(sk string) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(sk, checkpointPrefix), 10, 64)
}

// ulidAt is the lowest ULID of a millisecond.
func ulidAt(t time.Time) string {
	var u ulid.ULID
	_ = u.SetTime(ulid.Timestamp(t)) // fails only after the year 10889
	return u.String()
}
