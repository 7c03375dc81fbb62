package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"strings"
)

// asset is something that stays the same until the next deployment.
type asset struct {
	body   []byte
	etag   string
	header map[string]string // of every answer with it
}

func newAsset(body []byte, header map[string]string) asset {
	sum := sha256.Sum256(body)
	s := asset{body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`, header: maps.Clone(header)}
	s.header["ETag"] = s.etag
	// Kept, but asked about each time: a deployment shows at once.
	s.header["Cache-Control"] = "no-cache"
	return s
}

// answer is the asset, or word that the client's copy is still good.
func (s asset) answer(r *http.Request) answer {
	if s.known(r.Header.Values("If-None-Match")) {
		return answer{status: http.StatusNotModified, header: s.header}
	}
	return answer{header: s.header, body: s.body}
}

// known compares as RFC 9110, 13.1.2 asks for: a weak tag will do. No tag of ours holds a comma.
func (s asset) known(lines []string) bool {
	for tag := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == s.etag {
			return true
		}
	}
	return false
}
