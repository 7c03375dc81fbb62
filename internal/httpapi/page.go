package httpapi

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"strings"
)

// The page's parts stand beside each other for those who work on them, and go out as one document: it takes one
// request, and needs no route but its own.
//
//go:embed page
var pageParts embed.FS

// pageScripts are put together in this order: what is used, before what uses it as soon as it is loaded.
var pageScripts = []string{"dom.js", "api.js", "figure.js", "task.js", "timeline.js", "ask.js", "ticket.js", "main.js"}

// getPage shows people what the API knows.
func (a *api) getPage(_ context.Context, c *call) (answer, error) {
	return a.page().answer(c.Request), nil
}

func makePage() asset {
	var script strings.Builder
	for _, name := range pageScripts {
		script.WriteString(pagePart(name))
	}
	style := pagePart("style.css")
	body := strings.NewReplacer("{{style}}", style, "{{script}}", script.String()).Replace(pagePart("index.html"))
	return newAsset([]byte(body), map[string]string{
		"Content-Type":               "text/html; charset=utf-8",
		"Content-Security-Policy":    policy(style, script.String()),
		"Cross-Origin-Opener-Policy": "same-origin",
		"Referrer-Policy":            "no-referrer",
	})
}

// policy lets the page run its own script, use its own style, call its own API, and do nothing else. The script cannot
// make markup out of text either: there is no policy for trusted types that would let it.
func policy(style, script string) string {
	return strings.Join([]string{
		"default-src 'none'",
		"script-src " + source(script),
		"style-src " + source(style),
		"connect-src 'self'",
		"img-src data:", // the icon
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}, "; ")
}

// source names an inline element by its content.
func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func pagePart(name string) string {
	text, err := pageParts.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(text)
}
