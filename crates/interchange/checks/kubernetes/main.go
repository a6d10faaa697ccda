// Reads each file named as a Job with Kubernetes' own Go types; an unknown field, a wrong type or a mistake in what ties its parts
// together fails.
package main

import (
	"fmt"
	"os"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func read(text []byte) error {
	var job batch.Job
	if err := yaml.UnmarshalStrict(text, &job); err != nil {
		return err
	}
	if job.Kind != "Job" || job.APIVersion != batch.SchemeGroupVersion.String() {
		return fmt.Errorf("it is a %s of %s", job.Kind, job.APIVersion)
	}
	pod := job.Spec.Template.Spec
	if pod.RestartPolicy != core.RestartPolicyNever {
		return fmt.Errorf("restartPolicy is %q: a guest that ended would be started again", pod.RestartPolicy)
	}
	volumes := map[string]bool{}
	for _, volume := range pod.Volumes {
		volumes[volume.Name] = true
	}
	for _, container := range pod.Containers {
		for _, mount := range container.VolumeMounts {
			if !volumes[mount.Name] {
				return fmt.Errorf("no volume is called %q", mount.Name)
			}
		}
		limits := container.Resources.Limits
		// The static CPU manager gives a cpuset for whole CPUs of the class Guaranteed alone.
		if cpu := limits.Cpu(); cpu.IsZero() || cpu.MilliValue()%1000 != 0 || limits.Memory().IsZero() {
			return fmt.Errorf("limits are %v: whole CPUs and memory are needed", limits)
		}
	}
	return nil
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
