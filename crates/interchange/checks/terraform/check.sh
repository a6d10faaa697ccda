# Terraform: the provider's own XML, transformed by its own function with xsltproc, against our own editing.
# shellcheck shell=sh disable=SC2154 # `run` sets what this uses
transformed() {
	count=0
	for plan in "$work"/plans/*.json; do
		name=$(basename "$plan" .json)
		at=$work/terraform/$name
		"$work/checks" resources "$plan" "$at.resources"
		number=0
		# One stylesheet a VM; the list of the plan is in its order.
		"$work/checks" sheets "$plan" >"$at.sheets"
		while read -r sheet; do
			resource=$at.resources/$number
			"$work/terraform-check" "$resource.json" "$at/$sheet" "$resource.before.xml" "$resource.after.xml"
			"$work/checks" same "$plan" "$number" "$resource.before.xml" "$resource.after.xml"
			# Once more over its own result: nothing changes.
			xsltproc --nonet "$at/$sheet" "$resource.after.xml" >"$resource.again.xml"
			"$work/checks" same "$plan" "$number" "$resource.after.xml" "$resource.again.xml"
			number=$((number + 1))
		done <"$at.sheets"
		count=$((count + number))
	done
	[ "$count" -gt 0 ]
	echo "$count VMs"
}

other_vm() {
	first=$work/terraform/fleet
	if xsltproc --nonet "$first/alpha/web1.xsl" "$first.resources/1.before.xml"; then return 1; fi
}

if ! has xsltproc; then
	missing "terraform: the provider's XML" "there is no xsltproc"
elif ! has go golang-go; then
	missing "terraform: the provider's XML" "there is no go"
elif ! (cd "$checks/terraform" && go build -o "$work/terraform-check" .) >"$work/out" 2>&1; then
	missing "terraform: the provider's XML" "the provider does not build: $(tail -n 1 "$work/out")"
else
	check "terraform: the provider's XML, transformed by the provider, is what our editing makes of it" transformed
	check "terraform: the stylesheet of one VM refuses another" other_vm
fi
