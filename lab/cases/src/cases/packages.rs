//! The packages, on Debian as its installer leaves it, by what a user types.

use anyhow::{Context as _, ensure};
use nearmetal_lab::image::Release;

use super::{Case, Verdict, alone};
use crate::context::{Bench, Boot, programs};

pub(super) fn cases() -> Vec<Case> {
    vec![
        alone("packages/a-guest-runs-on-from-install-to-purge", || from_install_to_purge(Release::Trixie)),
        alone("packages/a-guest-runs-on-from-install-to-purge-on-debian-12", || {
            from_install_to_purge(Release::Bookworm)
        }),
    ]
}

/// What somebody who owns the guest would call the same guest: its process, its definitions, where its threads may run.
const GUEST: &str = "pid=$(cat /run/libvirt/qemu/web1.pid); virsh domid web1; echo $pid; virsh dumpxml web1; virsh dumpxml --inactive web1
    for t in /proc/$pid/task/*; do case $(cat $t/comm) in CPU*|qemu-system*) grep -h -e ^Name: -e _allowed_list: $t/status; esac; done";

/// What bears our name: the lab itself has some of it.
const OURS: &str = "find /etc /usr /var/lib -name '*nearmetal*' | sort";

fn from_install_to_purge(release: Release) -> anyhow::Result<Verdict> {
    let made = programs()?.parent().context("no directory above the programs")?.join("package");
    let package = |name: &str| {
        let found = made.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        found.into_iter().find(|path| {
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            file.starts_with(&format!("{name}_")) && file.ends_with(".deb")
        })
    };
    let (Some(main), Some(helper)) = (package("nearmetal"), package("nearmetal-libvirt")) else {
        return Ok(Verdict::CannotTry(format!("`{}` holds no packages: run ./dev package", made.display())));
    };
    let up = Bench::up(&format!("packages-{release}"), &Boot { release, ..Boot::default() })?;
    let bench = &up;
    // Nothing but what the packages bring.
    bench.sh("rm /usr/local/bin/nearmetal* && mkdir -p /root/p /root/later")?;
    up.lab.push(&main, "/root/p/nearmetal.deb")?;
    up.lab.push(&helper, "/root/p/nearmetal-libvirt.deb")?;
    // The same files as a later version.
    bench.sh(
        "cd /root/p && for p in *.deb; do
            dpkg-deb --raw-extract $p /root/tree
            sed -i -e 's/^Version: .*/&+later/' -e 's/(= \\([^)]*\\))/(= \\1+later)/' /root/tree/DEBIAN/control
            dpkg-deb -Znone --root-owner-group --build /root/tree /root/later/$p >/dev/null && rm -r /root/tree; done",
    )?;
    let has = format!(". /etc/os-release; test \"$VERSION_ID\" = {release}");
    bench.sh(&has)?;
    bench.found()?;
    let stored = "virsh dumpxml --inactive --security-info web1";
    let (as_found, definition) = (bench.sh(GUEST)?, bench.sh(stored)?);
    let before = bench.sh(OURS)?;
    let install = "apt-get -q -y --no-install-recommends install";

    let mut times = Vec::new();
    let mut timed = |what: &str, code: i32, script: &str| {
        let clock = std::time::Instant::now();
        let said = bench.ends_with(code, script)?;
        times.push(format!("{what} {:.0} s", clock.elapsed().as_secs_f64()));
        anyhow::Ok(said)
    };
    timed("install", 0, &format!("{install} /root/p/*.deb"))?;
    ensure!(bench.sh(GUEST)? == as_found, "installing changed the guest");
    timed("nearmetal", 0, "nearmetal")?;
    timed("doctor", 1, "nearmetal doctor")?;
    if release == Release::Bookworm {
        // Its AppArmor profile lets no guest be in huge pages of a node: the plan says which line helps, and we do as it says.
        let said = timed("plan refused", 1, "nearmetal plan web1 -o /root/plan.json")?;
        let remedy = said.lines().find_map(|line| line.split_once("from their next start on: "));
        bench.sh(remedy.with_context(|| format!("no remedy: {said}"))?.1)?;
    }
    timed("plan", 0, "nearmetal plan web1 -o /root/plan.json")?;
    timed("apply", 0, "nearmetal apply /root/plan.json --restart --yes")?;
    bench.wait_for_agent()?;
    timed("verify", 0, "nearmetal verify web1 --agent-timeout 60")?;

    let planned = bench.sh(GUEST)?;
    ensure!(planned != as_found, "applying changed nothing");
    timed("upgrade", 0, &format!("{install} /root/later/*.deb"))?;
    ensure!(bench.sh("dpkg-query -W -f '${Version}' nearmetal")?.ends_with("+later"), "it was not upgraded");
    ensure!(bench.sh(GUEST)? == planned, "upgrading changed the guest");
    bench.sh("nearmetal verify web1 --agent-timeout 60")?;

    let said = timed("remove", 0, "apt-get -q -y remove nearmetal nearmetal-libvirt")?;
    ensure!(said.contains("these changes stay in force"), "{said}");
    ensure!(bench.sh(GUEST)? == planned, "removing changed the guest");
    let said = bench.ends_with(100, "apt-get -q -y purge nearmetal")?;
    ensure!(said.contains("rollback --list"), "{said}");
    ensure!(bench.sh(GUEST)? == planned, "a refused purge changed the guest");

    bench.sh(&format!("{install} /root/p/*.deb"))?;
    timed("rollback", 0, "nearmetal rollback --restart")?;
    ensure!(bench.sh(stored)? == definition, "the definition is not what it was");
    bench.wait_for_agent()?;
    let back = bench.sh(GUEST)?;
    timed("purge", 0, "apt-get -q -y purge nearmetal nearmetal-libvirt")?;
    ensure!(bench.sh(GUEST)? == back, "purging changed the guest");
    let after = bench.sh(OURS)?;
    ensure!(after == before, "before the packages were there: {before}; now: {after}");
    up.lab.down()?;
    Ok(Verdict::Holds(format!("Debian {release}: {}; lab: emulated time", times.join(", "))))
}
