package main

import (
	"fmt"
	"strings"
)

// explanation says why no test notices a mutant. It names the mutant by what
// stays the same while lines move.
type explanation struct {
	file, function, change string
	source                 string // the text of its line
	at                     int    // its line in the list
	used                   bool
}

func (e *explanation) matches(m mutant) bool {
	return e.file == m.file && e.function == m.function && e.change == m.change &&
		e.source == m.source
}

// parseExplanations reads paragraphs of survivors, two lines for each as they
// are printed but without a line number, and of a reason that they share:
//
//	file.go: function: change
//		the text of the line
//	Why no test notices it.
//
// Lines that begin with # are comments.
func parseExplanations(text string) ([]*explanation, error) {
	var all []*explanation
	var open *explanation // its line of source comes next
	reasoned := true
	for i, line := range strings.Split(text+"\n", "\n") {
		source, indented := strings.CutPrefix(line, "\t")
		file, rest, _ := strings.Cut(line, ".go: ")
		function, change, isHeader := strings.Cut(rest, ": ")
		switch blank := strings.TrimSpace(line) == ""; {
		case strings.HasPrefix(line, "#"), blank && reasoned:
		case indented && open != nil:
			open.source, open = strings.TrimSpace(source), nil
		case blank || indented || open != nil:
			return nil, fmt.Errorf("%s:%d: want a survivor's two lines, then a reason",
				explanations, i+1)
		case isHeader && !strings.Contains(file, " "):
			open = &explanation{file: file + ".go", function: function, change: change, at: i + 1}
			all, reasoned = append(all, open), false
		default:
			reasoned = true
		}
	}
	return all, nil
}
