# KubeVirt: a strict reading by kubevirt.io/api.
# shellcheck shell=sh disable=SC2154 # `run` sets what this uses
misspelled() {
	sed 's/"dedicatedCpuPlacement"/"dedicatedCpuPlacment"/' "$work/kubevirt/fleet/alpha/web1.json" >"$work/wrong.json"
	if "$work/kubevirt-check" "$work/wrong.json"; then return 1; fi
}

if ! has go golang-go; then
	missing "KubeVirt's Go types" "there is no go"
elif ! (cd "$checks/kubevirt" && go build -o "$work/kubevirt-check" .) >"$work/out" 2>&1; then
	missing "KubeVirt's Go types" "kubevirt.io/api does not build: $(tail -n 1 "$work/out")"
else
	check "kubevirt: kubevirt.io/api reads every manifest strictly" \
		find "$work/kubevirt" -name '*.json' -exec "$work/kubevirt-check" {} +
	check "kubevirt: and refuses a misspelled field, so that this check can fail" misspelled
fi
