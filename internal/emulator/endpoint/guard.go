package endpoint

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// LocalOnly refuses with 403 what a web page of elsewhere sends, and what comes under a name other than loopback's. To
// listen on loopback does not suffice: a browser on this machine can be made to send there, by a cross-site request or
// under a foreign name that resolves to 127.0.0.1 (DNS rebinding). A nil logger means slog.Default.
func LocalOnly(next http.Handler, logger *slog.Logger) http.Handler {
	if logger == nil {
		logger = slog.Default()
	}
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := local(r, crossOrigin); err != nil {
			logger.Warn("request refused", "method", r.Method, "path", r.URL.Path, "reason", err)
			fail(w, http.StatusForbidden, "AccessDeniedException", err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

func local(r *http.Request, crossOrigin *http.CrossOriginProtection) error {
	if !loopback(r.Host) {
		return fmt.Errorf("the host %q is not this machine: use localhost or 127.0.0.1", r.Host)
	}
	// The library lets cross-origin GET pass, for the sake of sites; nothing here is for another one.
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return fmt.Errorf("a web page of %s has no business here", origin)
		}
	}
	if err := crossOrigin.Check(r); err != nil {
		return fmt.Errorf("another site's web page has no business here: %w", err)
	}
	return nil
}

// loopback says whether a Host header names this machine: localhost, a name below it (RFC 6761), or a loopback address.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}
