// Package checks runs named calls against a broker and tells what each found, for test_exporters.py.
package checks

import (
	"encoding/json"
	"os"
)

// Check makes one call; what it finds is for the test to judge.
type Check struct {
	Name string
	Call func() (any, error)
}

type told struct {
	Check string `json:"check"`
	Found any    `json:"found"`
	Error string `json:"error"`
}

// Run makes the calls in their order, and prints a line of JSON for each.
func Run(checks []Check) {
	out := json.NewEncoder(os.Stdout)
	for _, check := range checks {
		found, err := check.Call()
		line := told{Check: check.Name, Found: found}
		if err != nil {
			line.Error = err.Error()
		}
		out.Encode(line)
	}
}
