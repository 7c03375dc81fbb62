package engine

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// receipt identifies one delivery. It stays valid over restarts because all it names is stored.
type receipt struct {
	queue, position uint64
	receives        int
}

const receiptLength = 8 + 8 + 4 + 4

func newReceipt(queue, position uint64, receives int) string {
	var b [receiptLength]byte
	binary.BigEndian.PutUint64(b[0:], queue)
	binary.BigEndian.PutUint64(b[8:], position)
	binary.BigEndian.PutUint32(b[16:], uint32(receives)) //nolint:gosec // nobody receives four billion times
	binary.BigEndian.PutUint32(b[20:], crc32.ChecksumIEEE(b[:20]))
	return base64.StdEncoding.EncodeToString(b[:])
}

func parseReceipt(handle string, q *queue) (receipt, *Error) {
	b, err := base64.StdEncoding.DecodeString(handle)
	if err != nil || len(b) != receiptLength || binary.BigEndian.Uint32(b[20:]) != crc32.ChecksumIEEE(b[:20]) {
		return receipt{}, refuse(ReceiptHandleInvalid, "The input receipt handle %q is not a valid receipt handle.", handle)
	}
	r := receipt{
		queue:    binary.BigEndian.Uint64(b[0:]),
		position: binary.BigEndian.Uint64(b[8:]),
		receives: int(binary.BigEndian.Uint32(b[16:])),
	}
	if r.queue != q.id {
		return receipt{}, refuse(ReceiptHandleInvalid, "The receipt handle was not issued by queue %s.", q.name)
	}
	return r, nil
}
