package main

import (
	"fmt"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// readJob takes Kubernetes' types, and looks at what ties the parts of a Job together.
func readJob(text []byte) error {
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
