// Package price turns what a task uses into what a million of them cost.
package price

import (
	"fmt"
	"strings"
)

// Price is what AWS asks in us-east-1, in US dollars, without free tiers and discounts.
type Price struct {
	What    string
	Million float64 // dollars for a million
	Source  string  // AWS's page, and who quoted it when
}

// Prices that a task meets.
var (
	HTTPRequest = Price{
		"HTTP API requests", 1.00, "Amazon API Gateway pricing; awsforengineers.com, 2025-05-19",
	}
	LambdaRequest = Price{
		"Lambda requests", 0.20, "AWS Lambda pricing; wring.co, 2026-03-08",
	}
	LambdaGBSecond = Price{
		"Lambda GB-seconds, arm64", 13.3334, "AWS Lambda pricing; wring.co, 2026-03-08",
	}
	SQSRequest = Price{
		"SQS requests, standard queue with message groups (fair queue) or FIFO queue", 0.50, "Amazon SQS pricing; cloudburn.io, 2026-03-14",
	}
	WriteUnit = Price{
		"DynamoDB write request units, on demand", 0.625, "Amazon DynamoDB pricing; airbyte.com, 2025-07-21",
	}
	ReadUnit = Price{
		"DynamoDB read request units, on demand", 0.125, "Amazon DynamoDB pricing; airbyte.com, 2025-07-21",
	}
)

// Task is what one task uses.
type Task struct {
	HTTPRequests, LambdaRequests, SQSRequests float64
	GBSeconds                                 float64
	WriteUnits, ReadUnits                     float64
}

// Design is a way to run tasks, with what one uses at the turns of [Turns].
type Design struct {
	Name  string
	Tasks []Task
}

// Turns are the places in a conversation that are compared.
func Turns() []string { return []string{"1", "100", "1,000"} }

// lines are the positions of the bill.
func lines() []struct {
	price Price
	used  func(Task) float64
} {
	return []struct {
		price Price
		used  func(Task) float64
	}{
		{HTTPRequest, func(t Task) float64 { return t.HTTPRequests }},
		{LambdaRequest, func(t Task) float64 { return t.LambdaRequests }},
		{LambdaGBSecond, func(t Task) float64 { return t.GBSeconds }},
		{SQSRequest, func(t Task) float64 { return t.SQSRequests }},
		{WriteUnit, func(t Task) float64 { return t.WriteUnits }},
		{ReadUnit, func(t Task) float64 { return t.ReadUnits }},
	}
}

// Bill is the table of what a million tasks of each design cost, in Markdown: the dollars of each position, and what one task
// uses of it in brackets.
func Bill(designs ...Design) string {
	var b strings.Builder
	cells := []string{"a million tasks, in US dollars"}
	for _, d := range designs {
		for _, turn := range Turns() {
			cells = append(cells, d.Name+", turn "+turn)
		}
	}
	line(&b, cells)
	line(&b, append([]string{"---"}, repeat("---:", len(cells)-1)...))
	totals := make([]float64, len(cells)-1)
	for _, l := range lines() {
		cells := []string{l.price.What}
		for _, d := range designs {
			for _, task := range d.Tasks {
				dollars := l.used(task) * l.price.Million
				totals[len(cells)-1] += dollars
				cells = append(cells, fmt.Sprintf("%.2f (%.4g)", dollars, l.used(task)))
			}
		}
		line(&b, cells)
	}
	cells = []string{"**together**"}
	for _, total := range totals {
		cells = append(cells, fmt.Sprintf("**%.2f**", total))
	}
	line(&b, cells)
	return b.String()
}

// List is the table of prices, in Markdown.
func List() string {
	var b strings.Builder
	line(&b, []string{"price, us-east-1", "US dollars a million", "AWS's page; as quoted by"})
	line(&b, []string{"---", "---:", "---"})
	for _, l := range lines() {
		line(&b, []string{l.price.What, fmt.Sprintf("%.5g", l.price.Million), l.price.Source})
	}
	return b.String()
}

func line(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func repeat(s string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = s
	}
	return list
}
