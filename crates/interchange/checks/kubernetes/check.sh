# Kubernetes: the Job that the package ships, strictly read by k8s.io/api.
# shellcheck shell=sh disable=SC2154 # `run` sets what this uses
shipped=$root/packaging/examples/kubernetes/job.yaml
refused() {
	sed "$1" "$shipped" >"$work/wrong.yaml"
	if "$work/kubernetes-check" "$work/wrong.yaml"; then return 1; fi
}

if ! has go golang-go; then
	missing "Kubernetes' Go types" "there is no go"
elif ! (cd "$checks/kubernetes" && go build -o "$work/kubernetes-check" .) >"$work/out" 2>&1; then
	missing "Kubernetes' Go types" "k8s.io/api does not build: $(tail -n 1 "$work/out")"
else
	check "kubernetes: k8s.io/api reads the Job strictly" "$work/kubernetes-check" "$shipped"
	check "kubernetes: and refuses a misspelled field, so that this check can fail" refused s/backoffLimit/backofLimit/
	check "kubernetes: and a CPU that is not whole" refused 's/cpu: "9"/cpu: "8.5"/'
fi
