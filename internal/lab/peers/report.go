package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"
)

// section is what is reported of one workload.
type section struct {
	title  string
	header []string
	rows   [][]string
	goals  []goal
}

// goal is a number that should not be exceeded.
type goal struct {
	what, measured, want string
	met                  bool
}

func (s *section) row(cells ...string) { s.rows = append(s.rows, cells) }

// goal holds a number against the most that it should be; 0 is no goal.
func (s *section) goal(what string, measured, most float64, unit string) {
	if most == 0 {
		return
	}
	s.goals = append(s.goals, goal{
		what: what, measured: fmt.Sprintf("%.2f %s", measured, unit),
		want: fmt.Sprintf("<= %g %s", most, unit), met: measured <= most,
	})
}

// atLeast holds a number against the least that it should be.
func (s *section) atLeast(what string, measured, least float64, unit string) {
	s.goals = append(s.goals, goal{
		what: what, measured: fmt.Sprintf("%.2f %s", measured, unit),
		want: fmt.Sprintf(">= %g %s", least, unit), met: measured >= least,
	})
}

// none holds allocations for each decision against 0, up to what a measurement
// itself allocates.
func (s *section) none(what string, allocs float64) {
	s.goals = append(s.goals, goal{what, hundredths(allocs), "0", allocs < 0.005})
}

// report prints sections as they come, and all goals at the end.
type report struct {
	out  io.Writer
	done []goal
}

func (r *report) machine() {
	fmt.Fprintf(r.out, "%s, GOMAXPROCS=%d, %s %s/%s\n",
		processor(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// processor returns the name of the processor, where the system tells it.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func (r *report) section(s section) {
	r.done = append(r.done, s.goals...)
	fmt.Fprintf(r.out, "\n### %s\n\n", s.title)
	r.table(s.header, s.rows)
}

func (r *report) goals() {
	var rows [][]string
	for _, g := range r.done {
		met := "yes"
		if !g.met {
			met = "**no**"
		}
		rows = append(rows, []string{g.what, g.measured, g.want, met})
	}
	fmt.Fprint(r.out, "\n### Goals\n\n")
	r.table([]string{"workload", "measured", "goal", "met"}, rows)
}

// table writes Markdown, with the numbers to the right and the columns aligned.
func (r *report) table(header []string, rows [][]string) {
	widths := make([]int, len(header))
	for _, cells := range append([][]string{header}, rows...) {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(cells []string) {
		for i, cell := range cells {
			if i == 0 {
				fmt.Fprintf(r.out, "| %-*s |", widths[i], cell)
				continue
			}
			fmt.Fprintf(r.out, " %*s |", widths[i], cell)
		}
		fmt.Fprintln(r.out)
	}
	line(header)
	fmt.Fprintf(r.out, "|%s|", strings.Repeat("-", widths[0]+2))
	for _, w := range widths[1:] {
		fmt.Fprintf(r.out, "%s:|", strings.Repeat("-", w+1))
	}
	fmt.Fprintln(r.out)
	for _, cells := range rows {
		line(cells)
	}
}
