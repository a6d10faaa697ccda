// Reads each file named with the Go types of its kind, a Job or KubeVirt's VirtualMachine; an unknown field, a wrong type or a
// mistake in what ties its parts together fails.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func read(text []byte) error {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "Job":
		return readJob(text)
	case "VirtualMachine":
		return readMachine(text)
	}
	return fmt.Errorf("it is a %q, and a Job or a VirtualMachine is read", kind.Kind)
}

func main() {
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err == nil {
			err = read(text)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
	fmt.Printf("%d manifests\n", len(os.Args)-1)
}
