package chaos_test

import (
	"strings"
	"testing"

	"agentworker/internal/emulator/chaos"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"seed=7,kill=0.02,duplicate=0.05", "seed=7,kill=0.02,duplicate=0.05"},
		{" seed=7 , throttle=1 ", "seed=7,throttle=1"},
		{"kill,seed=7", "seed=7,kill=0.005"},
		{"all=0,seed=7,lost=0.5", "seed=7,lost=0.5"},
		{"seed=7,lost=0.5,all=0", "seed=7"},
		{"seed=18446744073709551615,sqs=1e-3", "seed=18446744073709551615,sqs=0.001"},
	} {
		p, err := chaos.Parse(c.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.text, err)
			continue
		}
		if got := p.String(); got != c.want {
			t.Errorf("Parse(%q): got %q, want %q", c.text, got, c.want)
		}
		if again, err := chaos.Parse(p.String()); err != nil || again.String() != p.String() {
			t.Errorf("Parse(%q) again: got %v (%v), want the same", p, again, err)
		}
	}
	all, err := chaos.Parse("all")
	if err != nil || len(all.Kinds()) != strings.Count(all.String(), ",") || len(all.Kinds()) < 15 {
		t.Errorf("all: got %v (%v), want every kind", all, err)
	}
	if p, err := chaos.Parse("  "); p != nil || err != nil {
		t.Errorf("no plan: got %v, %v, want nil", p, err)
	}
}

func TestParseDrawsASeed(t *testing.T) {
	t.Parallel()
	seeds := map[uint64]bool{}
	for range 10 {
		p, err := chaos.Parse("all")
		if err != nil {
			t.Fatal(err)
		}
		seeds[p.Seed] = true
	}
	if len(seeds) == 1 {
		t.Errorf("ten plans have one seed, %v", seeds)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"kil=0.5", `there is no fault "kil"; known are throttle, `},
		{"Kill", `there is no fault "Kill"`},
		{"kill=2", `kill is "2"; set a rate from 0 to 1`},
		{"kill=-0.1", `kill is "-0.1"`},
		{"kill=NaN", `kill is "NaN"`},
		{"all=often", `all is "often"`},
		{"seed=-1", `seed is "-1"; set a whole number`},
		{"seed", `seed is ""`},
		{"kill,,lost", `there is no fault ""`},
		{"kill=7,lots=1", "lots"},
	} {
		if _, err := chaos.Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%q): got %v, want an error with %q", c.text, err, c.want)
		}
	}
}
