package main

import (
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// VirtualMachineInstanceSpec has an UnmarshalJSON of its own, inside of which nothing is strict: without methods it has none.
type instance v1.VirtualMachineInstanceSpec

// readMachine takes KubeVirt's types.
func readMachine(text []byte) error {
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
