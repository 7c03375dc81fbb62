// Package chaos breaks the local chain on purpose, from the outside: at the AWS endpoint, around the event source mappings
// and by signals to the functions' processes. The functions' binaries hold nothing of it.
//
// A [Plan] says how often each kind of fault strikes; an [Injector] strikes. Whether it does at some point is decided by the
// plan's seed, the kind of fault, and what is being done to which task for the how-manieth time, not by when. The same
// seed therefore gives the same faults as long as the same things are done to the same tasks; what processes do side by
// side still differs from run to run, and random task ids make other decisions.
package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Plan says how often things go wrong. Its zero value is a plan in which nothing does.
type Plan struct {
	Seed  uint64
	rates map[Kind]float64
}

// Parse reads a plan: entries with commas between them, each "all" (every kind at its usual rate), "<kind>=<rate>" with a
// rate from 0 to 1, "<kind>" alone (its usual rate), or "seed=<number>". Later entries count over earlier ones.
// Without a seed one is drawn. "" is no plan: nil.
func Parse(text string) (*Plan, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil //nolint:nilnil // no plan is a plan too
	}
	p := &Plan{Seed: rand.Uint64N(1_000_000), rates: map[Kind]float64{}} // a short number to retype
	var problems []error
	for entry := range strings.SplitSeq(text, ",") {
		if err := p.add(strings.TrimSpace(entry)); err != nil {
			problems = append(problems, err)
		}
	}
	return p, errors.Join(problems...)
}

func (p *Plan) add(entry string) error {
	name, value, given := strings.Cut(entry, "=")
	if name == "seed" {
		seed, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return fmt.Errorf("seed is %q; set a whole number from 0", value)
		}
		p.Seed = seed
		return nil
	}
	found := false
	for _, k := range known {
		if name != string(k.kind) && name != "all" {
			continue
		}
		found = true
		rate := k.rate
		if given {
			var err error
			if rate, err = strconv.ParseFloat(value, 64); err != nil || !(rate >= 0 && rate <= 1) {
				return fmt.Errorf("%s is %q; set a rate from 0 to 1", name, value)
			}
		}
		p.rates[k.kind] = rate
	}
	if !found {
		return fmt.Errorf("there is no fault %q; known are %s, all and seed", name, strings.Join(names(), ", "))
	}
	return nil
}

// Rate is how often a kind of fault strikes, 0 to 1.
func (p *Plan) Rate(k Kind) float64 { return p.rates[k] }

// Kinds are those that can strike.
func (p *Plan) Kinds() []Kind {
	var kinds []Kind
	for _, k := range known {
		if p.rates[k.kind] > 0 {
			kinds = append(kinds, k.kind)
		}
	}
	return kinds
}

// String is the plan in the form that [Parse] reads, the seed first.
func (p *Plan) String() string {
	entries := []string{fmt.Sprintf("seed=%d", p.Seed)}
	for _, k := range known {
		if rate := p.rates[k.kind]; rate > 0 {
			entries = append(entries, string(k.kind)+"="+strconv.FormatFloat(rate, 'g', -1, 64))
		}
	}
	return strings.Join(entries, ",")
}

func names() []string {
	list := make([]string, len(known))
	for i, k := range known {
		list[i] = string(k.kind)
	}
	return list
}
