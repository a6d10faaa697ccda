//! Domains for the lab, as people write them by hand, and what is done with any of them.

/// `web1`: the whole first namespace of the NVMe drive as its virtio disk, and nothing tuned. Its system is the small
/// Debian on that namespace; the kernel and initramfs are the appliance's.
pub const FOUND: &str = include_str!("../domains/found.xml");

/// A shell script that waits in a lab until the agent of `guest` answers, and ends with 1 if it did not in three boots.
///
/// Emulation sometimes loses an interrupt while a guest's processors start, and the guest then hangs: the same trap as with labs
/// themselves. Such a guest is powered off and started again, which the script says on stderr. A guest that only boots slowly
/// tells itself apart by the time that its processors spend, so it is waited for.
pub fn wait_for_agent(guest: &str) -> String {
    format!(
        r#"
answers() {{ timeout 10 virsh -q qemu-agent-command {guest} '{{"execute":"guest-ping"}}' >/dev/null 2>&1; }}
spent() {{ virsh -q domstats --cpu-total {guest} | sed -n 's/^ *cpu.time=//p'; }}
waited() {{
    began=$(date +%s); look=$((began + 60)); before=0
    until answers; do
        now=$(date +%s)
        if [ "$now" -ge "$look" ]; then
            time=$(spent)
            [ $((now - began)) -lt 240 ] && [ $((${{time:-0}} - before)) -ge 10000000000 ] || return 1
            look=$((now + 60)); before=$time
        fi
        sleep 1
    done
}}
for boot in 1 2 3; do
    waited && exit 0
    echo "{guest} hung while it booted: $(virsh domstate {guest}) after $(spent) ns of its processors" >&2
    virsh -q destroy {guest}; virsh -q start {guest}
done
exit 1"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the script with a guest whose agent answers once the command `agent` succeeds at that `$clock`, and whose processors
    /// spend so many ns in a second; what it said, and its code.
    fn with_virsh(agent: &str, spends: u32) -> (String, Option<i32>) {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            nearmetal_host::files::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        let here = directory.path().display();
        // A clock of its own: each sleep is twenty seconds.
        file("date", &format!("#!/bin/sh\ncat {here}/clock 2>/dev/null || echo 0\n"));
        file("sleep", &format!("#!/bin/sh\necho $(($(cat {here}/clock 2>/dev/null || echo 0) + 20)) > {here}/clock\n"));
        file(
            "virsh",
            &format!(
                "#!/bin/sh\nclock=$(cat {here}/clock 2>/dev/null || echo 0)\ncase \"$*\" in\n*agent*) {agent} ;;\n*domstats*) \
                 echo \"  cpu.time=$((clock * {spends}))\" ;;\n*start*) echo started >&2 ;;\nesac\n"
            ),
        );
        let path = format!("{here}:/usr/bin:/bin");
        let output =
            std::process::Command::new("sh").args(["-c", &wait_for_agent("web1")]).env("PATH", path).output().unwrap();
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    }

    #[test]
    fn a_guest_that_boots_slowly_is_waited_for_and_one_that_hangs_is_started_again() {
        let slow = "[ $clock -ge 180 ]";
        assert_eq!(with_virsh(slow, 200_000_000), (String::new(), Some(0)));
        // Its processors stand still: started again after a minute, and again, by when it answers.
        let (said, code) = with_virsh(slow, 0);
        assert_eq!((said.matches("started").count(), code), (2, Some(0)), "{said}");
        let (said, code) = with_virsh("false", 200_000_000);
        assert_eq!((said.matches("started").count(), code), (3, Some(1)), "{said}");
    }
}
