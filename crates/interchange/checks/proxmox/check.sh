# Proxmox VE: the hookscript, run on threads that are files, with a taskset that writes down what it is asked.
# shellcheck shell=sh disable=SC2154 # `run` sets what this uses
hook() {
	at=$work/proxmox/stage
	rm -rf "$at"
	mkdir -p "$at/bin" "$at/run"
	printf '#!/bin/sh\necho "$3 $2" >>"%s/asked"\n' "$at" >"$at/bin/taskset"
	chmod +x "$at/bin/taskset"
	echo 99 >"$at/run/101.pid"
	# Numbers of threads that sort otherwise as texts.
	thread() {
		mkdir -p "$at/proc/99/task/$1"
		echo "$2" >"$at/proc/99/task/$1/comm"
	}
	thread 98 kvm
	thread 99 'IO iothread-vir'
	thread 100 'IO iothread-vir'
	for vcpu in 0 1 2 3 4 5 6 7; do thread $((101 + vcpu)) "CPU $vcpu/KVM"; done
	thread 120 vhost-99
	run_hook() { PATH="$at/bin:$PATH" NEARMETAL_PROC=$at/proc NEARMETAL_RUN=$at/run sh "$work/proxmox/host/kvm7/nearmetal-101.sh" "$@"; }
	run_hook 101 pre-start
	[ ! -e "$at/asked" ]
	run_hook 101 post-start
	printf '%s\n' '98 12-13' '99 12' '100 13' '101 8' '102 9' '103 10' '104 11' '105 16' '106 17' '107 18' '108 19' '120 13' >"$at/wanted"
	diff -u "$at/wanted" "$at/asked"
	# Without names of threads nothing would be pinned one to one: that is an error.
	echo kvm >"$at/proc/99/task/101/comm"
	if run_hook 101 post-start 2>/dev/null; then return 1; fi
	echo "12 threads, each where the plan has it"
}

missing "proxmox: Proxmox's own schema" "it is Perl of Proxmox's own packages, which no registry here has; tests/proxmox.rs has the forms of man qm.conf"
check "proxmox: every hookscript is a shell's program" shells "$work/proxmox"
check "proxmox: a hookscript pins each thread" hook
