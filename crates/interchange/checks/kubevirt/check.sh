# KubeVirt: a strict reading by kubevirt.io/api; and the Job that the package ships, by k8s.io/api.
# shellcheck shell=sh disable=SC2154 # `run` sets what this uses
shipped=$root/packaging/examples/kubernetes/job.yaml
# refused EXPRESSION FILE: whether the file is refused once sed has spoiled it.
refused() {
	sed "$1" "$2" >"$work/wrong.yaml"
	if "$work/kubernetes-check" "$work/wrong.yaml"; then return 1; fi
}

if ! has go golang-go; then
	missing "Kubernetes' and KubeVirt's Go types" "there is no go"
elif ! (cd "$checks/kubevirt" && go build -o "$work/kubernetes-check" .) >"$work/out" 2>&1; then
	missing "Kubernetes' and KubeVirt's Go types" "they do not build: $(tail -n 1 "$work/out")"
else
	check "kubevirt: kubevirt.io/api reads every manifest strictly" \
		find "$work/kubevirt" -name '*.json' -exec "$work/kubernetes-check" {} +
	check "kubevirt: and refuses a misspelled field, so that this check can fail" \
		refused 's/"dedicatedCpuPlacement"/"dedicatedCpuPlacment"/' "$work/kubevirt/fleet/alpha/web1.json"
	check "kubernetes: k8s.io/api reads the shipped Job strictly" "$work/kubernetes-check" "$shipped"
	check "kubernetes: and refuses a misspelled field" refused s/backoffLimit/backofLimit/ "$shipped"
	check "kubernetes: and a CPU that is not whole" refused 's/cpu: "9"/cpu: "8.5"/' "$shipped"
fi
