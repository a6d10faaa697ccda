//! Runs of users in system mode: root's service does them, inside what the user's job was given.

use anyhow::ensure;
use nearmetal_units::CpuSet;

use super::super::{Case, HOLDS, Verdict, shared, shared_long};
use super::session::{self, BEGUN};
use super::{FLAVOURS, nothing_is_left};
use crate::context::Bench;

const SOCKET: &str = include_str!("../../../../../packaging/systemd/nearmetal-run.socket");
const SERVICE: &str = include_str!("../../../../../packaging/systemd/nearmetal-run@.service");
const SLICE: &str = include_str!("../../../../../packaging/systemd/system-nearmetal.slice");

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("run/service/a-user-gets-pages-inside-what-the-job-was-given", pages),
        shared_long("run/service/killed-it-leaves-nothing", killed),
        shared_long("run/service/refuses-whom-and-what-it-is-not-for", refusals),
    ]
}

/// Alice is one of those whom the flavour with huge pages is open to; Bob may use KVM, and Carol nothing.
fn set_up(bench: &Bench) -> anyhow::Result<()> {
    session::set_up(bench)?;
    bench.sh("mkdir -p /etc/nearmetal")?;
    bench.write("/etc/nearmetal/flavours.toml", &flavours_for("physics"))?;
    bench.sh("groupadd -f physics; usermod -aG physics alice; chmod 755 /etc/nearmetal; chmod 644 /etc/nearmetal/flavours.toml")?;
    listen(bench)
}

/// The flavours of all cases, those with huge pages and with a disk open to a group.
pub(in crate::cases) fn flavours_for(group: &str) -> String {
    let open = format!("\nopen-to = \"{group}\"\ngrace = \"5s\"");
    let of = |key: &str| (key.to_owned(), format!("{key}{open}"));
    [of("page-size = \"2 MiB\""), of("boot = \"kernel\"")]
        .into_iter()
        .fold(FLAVOURS.to_owned(), |text, (key, with)| text.replace(&key, &with))
}

/// Starts the package's socket.
pub(in crate::cases) fn listen(bench: &Bench) -> anyhow::Result<()> {
    bench.write("/run/systemd/system/nearmetal-run.socket", SOCKET)?;
    bench.write("/run/systemd/system/nearmetal-run@.service", SERVICE)?;
    bench.write("/run/systemd/system/system-nearmetal.slice", SLICE)?;
    bench.sh("ln -sf /usr/local/bin/nearmetal /usr/bin/nearmetal; systemctl daemon-reload; systemctl restart nearmetal-run.socket")?;
    Ok(())
}

fn tear_down(bench: &Bench) -> anyhow::Result<()> {
    bench.sh(
        "systemctl stop nearmetal-run.socket; rm -rf /run/systemd/system/nearmetal-run* /run/systemd/system/system-nearmetal.slice /etc/nearmetal/flavours.toml /usr/bin/nearmetal /var/tmp/console
         systemctl daemon-reload",
    )?;
    Ok(())
}

fn as_user(user: &str, words: &str) -> String {
    format!("setpriv --reuid {user} --regid {user} --init-groups --reset-env nearmetal run --mode system {words}")
}

fn pages(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    let job =
        "systemd-run -q --uid=alice --gid=alice --pipe --wait -p AllowedCPUs=2-5 nearmetal run pages --mode system";
    let inside = "nproc; echo on the console >/dev/ttyS0; echo err >&2; exit 7";
    let text = bench
        .ends_with(7, &format!("{job} --events /var/tmp/events-job --console /var/tmp/console -- sh -c '{inside}'"))?;
    ensure!(text.starts_with("2\n") && text.contains("\nerr"), "{text}");
    ensure!(bench.sh("cat /var/tmp/console")?.contains("on the console"), "nothing of the console");
    nothing_is_left(bench, "a user's run")?;
    let events = bench.sh("cat /var/tmp/events-job")?;
    let reserved = events.lines().find(|line| line.contains("\"event\":\"reserved\"")).unwrap_or_default();
    let reserved: serde_json::Value = serde_json::from_str(reserved)?;
    let cpus: CpuSet = reserved["cpus"].as_str().unwrap_or_default().parse()?;
    ensure!(!cpus.is_empty() && cpus.is_subset(&"2-5".parse()?), "{events}");
    ensure!(reserved["page_size"] == 2 << 20 && events.contains("\"outcome\":\"exited\",\"code\":7"), "{events}");
    // Its user data arrive as bytes.
    bench.write("/var/tmp/user-data", "#cloud-config\nhostname: seen\n")?;
    let inside = "tr -d '\\000' </dev/vda | grep -o -e CIDATA -e 'hostname: seen'";
    let words = format!("disk --user-data /var/tmp/user-data -- sh -c \"{inside}\"");
    let text = bench.sh(&format!("chmod 644 /var/tmp/user-data; {}", as_user("alice", &words)))?;
    ensure!(text.contains("CIDATA") && text.contains("hostname: seen"), "{text}");
    nothing_is_left(bench, "a user's run with user data")?;
    tear_down(bench)?;
    Ok(HOLDS)
}

fn killed(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    let waiting = format!(
        "events=/var/tmp/events-alice; rm -f $events; {} 2>/var/tmp/said & run=$!; {BEGUN}\n",
        as_user("alice", "pages --events $events -- sleep 600")
    );
    let listed = bench.sh(&format!("{waiting}nearmetal run --list; kill -TERM $run; wait $run; echo code $?"))?;
    ensure!(listed.lines().any(|line| line.starts_with("run-pages-") && line.contains(" alice ")), "{listed}");
    ensure!(listed.ends_with("code 143"), "{listed}");
    nothing_is_left(bench, "SIGTERM to the user's side")?;
    for (who, kill, code) in [
        ("the user's side", "kill -9 $run", "137"),
        ("QEMU", "pkill -9 -f '[g]uest=run-pages'", "3"),
        ("the service", "pkill -9 -f '[n]earmetal run-service'", "3"),
    ] {
        let ended = bench.sh(&format!("{waiting}{kill}; wait $run; echo $?; cat /var/tmp/said"))?;
        ensure!(ended.lines().next() == Some(code), "{who}: {ended}");
        // Who is killed says nothing; the service that is left ends the guest within its grace.
        bench.sh(GONE)?;
        if who == "the service" {
            let left = bench.sh("sleep 5; pgrep -f '[g]uest=run-'; true")?;
            ensure!(left.is_empty(), "{who}: {left}");
            bench.sh(&as_user("alice", "pages -- true"))?;
        }
        nothing_is_left(bench, who)?;
    }
    tear_down(bench)?;
    Ok(HOLDS)
}

/// Waits until nobody is connected any more.
const GONE: &str = "for i in $(seq 60); do systemctl -q is-active 'nearmetal-run@*' || exit 0; sleep 1; done
    systemctl list-units 'nearmetal-run@*'; exit 1";

/// Connections that say nothing, those that say what is no request, one that says a byte now and then, and a hundred in a row.
const NOISE: &str = "use IO::Socket::UNIX; my @all; $SIG{PIPE} = 'IGNORE';
for my $say ('', 'r', \"r\\xff\\xff\\xff\\xff\", \"x\\0\\0\\0\\0\", \"r\\x02\\0\\0\\0[]\", \"s\\x01\\0\\0\\0\\x0f\") {
    for (1 .. 5) { my $s = IO::Socket::UNIX->new(Peer => '/run/nearmetal/run.socket') or die; $s->autoflush; print $s $say; push @all, $s }
}
my $slow = IO::Socket::UNIX->new(Peer => '/run/nearmetal/run.socket') or die; $slow->autoflush; print $slow \"r\\0\\x02\\0\\0\";
for (1 .. 100) { my $s = IO::Socket::UNIX->new(Peer => '/run/nearmetal/run.socket') }
while (1) { sleep 3; print $slow ' ' }
";

fn refusals(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    bench.write("/var/tmp/noise.pl", NOISE)?;
    for (user, words, says) in [
        ("bob", "pages -- true", "its `open-to` is the group `physics`, of which the user is not a member"),
        ("alice", "tiny -- true", "only root may have it"),
        ("alice", "pages --flavours /tmp/x -- true", "--flavours is the service's to say"),
        ("carol", "pages -- true", "usermod -aG kvm carol"),
    ] {
        let text = bench.ends_with(3, &as_user(user, words))?;
        ensure!(text.contains(says), "{user}, {words}: {text}");
    }
    let text = bench.ends_with(2, &as_user("alice", "nosuch -- true"))?;
    ensure!(text.contains("no flavour is called `nosuch`"), "{text}");
    // Who says nothing, or nonsense, keeps nobody from a run, and is gone after a while.
    bench.sh(
        "chmod 644 /var/tmp/noise.pl; systemd-run -q --uid=bob --gid=bob --unit=noise -p SupplementaryGroups=kvm perl -w /var/tmp/noise.pl; sleep 2
         systemctl is-active noise",
    )?;
    bench.sh(&as_user("alice", "pages -- true"))?;
    bench.sh(GONE)?;
    bench.sh("systemctl stop noise")?;
    nothing_is_left(bench, "refusals")?;
    tear_down(bench)?;
    let text = bench.ends_with(3, &as_user("alice", "pages -- true"))?;
    ensure!(text.contains("systemctl enable --now nearmetal-run.socket"), "{text}");
    Ok(HOLDS)
}
