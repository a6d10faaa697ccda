# Ansible: its own reading of the playbook and the inventory, and ansible-lint.
# shellcheck shell=sh disable=SC2154 # `run` sets what this uses
playbook() {
	for at in "$work"/ansible/*/; do
		(cd "$at" && ansible-playbook -i inventory.json --syntax-check site.yml)
		(cd "$at" && ansible-playbook -i inventory.json --list-tasks --tags rollback site.yml) >"$work/tasks"
		grep -q 'nearmetal : Roll back the plan' "$work/tasks"
		if grep -q 'nearmetal : Apply the plan' "$work/tasks"; then return 1; fi
	done
	(cd "$work/ansible/fleet" && ansible-inventory -i inventory.json --list) | grep -q '"ansible_user": "root"'
}

# The role on this machine, with a program in nearmetal's place that writes down what it is asked.
carried_out() {
	at=$work/ansible/stage
	rm -rf "$at"
	cp -r "$work/ansible/host" "$at"
	mkdir -p "$at/programs" "$at/installed"
	for program in nearmetal-libvirt nearmetal-probe; do printf '#!/bin/sh\n' >"$at/programs/$program"; done
	# Nothing is in force at first: `verify` says so until `apply` was called; then it says what `--live-only` left.
	cat >"$at/programs/nearmetal" <<-END
		#!/bin/sh
		echo "\$1 \$2" >>"$at/asked"
		case \$1 in
		verify) [ -e "$at/applied" ] && cat "$at/applied" ;;
		apply)
			case " \$* " in
			*' --dry-run '*) ;;
			*' --live-only '*) echo "page size: takes effect at the guest's next start" >"$at/applied" ;;
			*) : >"$at/applied" ;;
			esac
			;;
		rollback) rm "$at/applied" ;;
		esac
	END
	play() {
		(cd "$at" && ansible-playbook -i inventory.json site.yml -e ansible_become=false \
			-e "ansible_python_interpreter=$work/venv-ansible/bin/python" \
			-e "nearmetal_install_directory=$at/installed" -e "nearmetal_plan_directory=$at/plan" "$@")
	}
	play
	cmp "$at/plan/plan.json" "$at/plans/kvm7.json"
	play # in force already: nothing is applied again
	play --tags rollback
	play -e '{"nearmetal_apply_options": ["--live-only"]}'
	play # what waits is left to wait
	play -e '{"nearmetal_apply_options": ["--restart"]}'
	play -e '{"nearmetal_apply_options": ["--restart"]}' # nothing waits any more
	applied='verify --plan\napply --dry-run\napply --yes\nverify --plan\n'
	looked='verify --plan\nverify --plan\n'
	printf %b "$applied$looked" 'rollback --plan\n' "$applied$looked" "$applied$looked" >"$at/wanted"
	diff -u "$at/wanted" "$at/asked"
	echo "applied once, verified, rolled back; a restart that was due done once"
}

if ! has python3; then
	missing "ansible: ansible-playbook and ansible-lint" "there is no python3"
elif ! python_with ansible 'ansible-core>=2.15' ansible-lint; then
	missing "ansible: ansible-playbook and ansible-lint" "they do not install: $(tail -n 1 "$work/out")"
else
	PATH=$work/venv-ansible/bin:$PATH
	export ANSIBLE_NOCOLOR=1 ANSIBLE_HOME="$work/ansible-home" ANSIBLE_LOCALHOST_WARNING=false
	check "ansible: ansible-playbook --syntax-check, inventory and tags" playbook
	if [ "$(id -u)" = 0 ]; then
		check "ansible: the role applies once, verifies, and rolls back on its tag" carried_out
	else
		missing "ansible: the role carried out" "it sets owners, so run this as root"
	fi
	check "ansible: ansible-lint, profile production" \
		sh -c 'cd "$1" && ansible-lint --offline --nocolor --profile production site.yml roles' sh "$work/ansible/fleet"
fi
