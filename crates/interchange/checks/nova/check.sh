# Nova: extra specs by nova.api.validation, flavors by nova.virt.hardware, nova.conf by nova.conf.
# shellcheck shell=sh disable=SC2154 # `run` sets what this uses
imported() {
	rm -f "$work/fleet.toml"
	"$nearmetal" fleet import --from nova "$work/nova/host/flavors.json" -o "$work/fleet.toml"
	"$nearmetal" fleet check "$work/fleet.toml"
	echo "3 VMs"
}

if ! has python3; then
	missing "nova: Nova's own code" "there is no python3"
elif ! python_with nova 'nova==34.*'; then
	missing "nova: Nova's own code" "it does not install: $(tail -n 1 "$work/out")"
else
	check "nova: flavors and nova.conf, read by Nova's own validators and numa_get_constraints" \
		"$work/venv-nova/bin/python" -W ignore "$checks/nova/check.py" "$work"/nova/*/
	check "nova: create.sh is a shell's program" shells "$work/nova"
	check "nova: flavors come back as a fleet file that nearmetal reads" imported
fi
