package httpapi_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshot", "", "a folder to keep the page's screenshots in")

// browser is one Chromium for all of a test's tabs.
func browser(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("the page is not tested in a browser: no Chromium is installed (on Debian: apt-get install chromium)")
	}
	home := scratch(t)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(),
		chromedp.ExecPath(program), chromedp.UserDataDir(filepath.Join(home, "profile")),
		chromedp.Env("HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "TMPDIR="+home),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("no-default-browser-check", true), chromedp.Flag("hide-scrollbars", false),
		// What a program that nobody knows of would ask for leads nowhere.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("close the browser: %v", err)
		}
		cancelTab()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	return ctx
}

// scratch is a folder for a program whose last processes may write there for a moment after it has ended. Its name is
// short, since the path of a socket in it has to be.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "b") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		limit, tick := time.NewTimer(10*time.Second), time.NewTicker(20*time.Millisecond)
		defer limit.Stop()
		defer tick.Stop()
		for err := os.RemoveAll(dir); err != nil; err = os.RemoveAll(dir) {
			select {
			case <-tick.C:
			case <-limit.C:
				t.Errorf("the browser's folder: %v", err)
				return
			}
		}
	})
	return dir
}

// tab is a tab in which nothing may go wrong.
type tab struct {
	*testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// open opens a page of the server. allow says which failed answers are meant to come.
func open(t *testing.T, browser context.Context, url string, allow func(url string, status int64) bool) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // a tab ends with the context of its first action
		t.Fatalf("open a tab: %v", err)
	}
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	b := &tab{T: t, ctx: ctx}
	allowed := map[string]bool{}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.fault("exception: %+v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			b.fault("console.%s: %s", e.Type, words(e.Args))
		case *log.EventEntryAdded:
			if !allowed[e.Entry.URL] {
				b.fault("log: %s %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
			}
		case *audits.EventIssueAdded:
			b.fault("issue: %s %+v", e.Issue.Code, e.Issue.Details)
		case *network.EventResponseReceived:
			switch {
			case e.Response.Status < 400:
			case allow != nil && allow(e.Response.URL, e.Response.Status):
				allowed[e.Response.URL] = true
			default:
				b.fault("answer: %d %s", e.Response.Status, e.Response.URL)
			}
		case *network.EventLoadingFailed:
			if !e.Canceled {
				b.fault("request failed: %s", e.ErrorText)
			}
		}
	})
	if err != nil {
		t.Fatalf("listen to a tab: %v", err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.faults {
			t.Errorf("page: %s", f)
		}
	})
	b.do(send(runtime.Enable, cdp.Empty{}), send(log.Enable, cdp.Empty{}), send(audits.Enable, cdp.Empty{}), send(network.Enable, network.EnableParams{}),
		size(1280, 900), chromedp.Navigate(url))
	return b
}

func (b *tab) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// send makes an action of a command of the protocol.
func send[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, command, params)
		return err
	})
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatalf("browser: %v", err)
	}
}

// value evaluates an expression in the page.
func value[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to become true.
func (b *tab) until(expression string) {
	b.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[chromedp.Void]("Boolean("+expression+")",
		chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(30*time.Second)))
	if err != nil {
		b.shoot("given-up")
		b.Fatalf("%s does not come true: %v; the page says:\n%s", expression, err, value[string](b, "document.body.innerText"))
	}
}

// standsAt waits until the shown task is where it should be.
func (b *tab) standsAt(state string) {
	b.Helper()
	b.until(`document.querySelector("#track [aria-current]")?.innerText.includes("` + state + `")`)
}

func (b *tab) text(selector string) string {
	b.Helper()
	return value[string](b, `document.querySelector("`+selector+`")?.innerText ?? "(nothing)"`)
}

func size(width, height int64) chromedp.Action[chromedp.Void] {
	return send(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	})
}

func scheme(name string) chromedp.Action[chromedp.Void] {
	return send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

// shoot takes a picture of the whole page, for a person to look at.
func (b *tab) shoot(name string) {
	b.Helper()
	beyond := true
	picture, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond})
	if err != nil {
		b.Errorf("screenshot %s: %v", name, err)
		return
	}
	dir := *screenshots
	if dir == "" {
		dir = b.TempDir()
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture.Data, 0o600); err != nil {
		b.Errorf("screenshot %s: %v", name, err)
	}
	if len(picture.Data) < 10<<10 {
		b.Errorf("screenshot %s: got %d bytes, want a picture with something in it", name, len(picture.Data))
	}
}

// fits checks that nothing sticks out of the page.
func (b *tab) fits(what string) {
	b.Helper()
	if over := value[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		b.Errorf("%s: the page is %d pixels wider than its window", what, over)
	}
}

// stopped is in front of an API that lets nobody in, as API Gateway is with IAM.
func stopped(t *testing.T, pageOf http.Handler) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/agent/") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"message":"Forbidden"}`))
			return
		}
		pageOf.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func words(args []*runtime.RemoteObject) string {
	var all []string
	for _, a := range args {
		all = append(all, string(a.Value)+a.Description)
	}
	return strings.Join(all, " ")
}
