// Reads each file named as a VirtualMachine with KubeVirt's own Go types; an unknown field or a wrong type fails.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// VirtualMachineInstanceSpec has an UnmarshalJSON of its own, inside of which nothing is strict: without methods it has none.
type instance v1.VirtualMachineInstanceSpec

func read(text []byte) error {
	var machine v1.VirtualMachine
	if err := yaml.UnmarshalStrict(text, &machine); err != nil {
		return err
	}
	if machine.Kind != v1.VirtualMachineGroupVersionKind.Kind || machine.Spec.Template == nil {
		return fmt.Errorf("it is no %s with a template", v1.VirtualMachineGroupVersionKind.Kind)
	}
	var parts struct {
		Spec struct {
			Template struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &parts); err != nil {
		return err
	}
	var spec instance
	return yaml.UnmarshalStrict(parts.Spec.Template.Spec, &spec)
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
