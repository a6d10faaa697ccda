"""A lab with Cockpit in it, and a way to it: `nearmetal lab` boots it, ssh brings its loopback to a port of this one's."""

import signal
import subprocess
import sys
import time

from page import NEARMETAL, ROOT, WORK, WS_OPTIONS, answers, cockpit_ws, free_port

NAME = "cockpit"
# The lab's own; only its loopback has them. One is of a session of root's that nobody has to log in to, the other Cockpit's as Debian
# starts it.
PORT, LOGIN_PORT = 9091, 9090
# A user as an installer of Debian makes one, who may become root.
USER, PASSWORD = "keeper", "correct horse battery staple"
# What is asked of the lab takes longer only if it hangs.
LIMIT = 600
# The bridge knows this directory of pages, and nearmetal looks for its helpers beside itself.
PAGES, PROGRAMS = "/usr/share/cockpit", "/usr/local/bin"

# As in the lab cases, a guest that does not answer because emulation lost an interrupt is started again.
WAIT_FOR_AGENT = """
answers() { timeout 10 virsh -q qemu-agent-command GUEST '{"execute":"guest-ping"}' >/dev/null 2>&1; }
for boot in 1 2 3; do
    for try in $(seq 90); do answers && exit 0; sleep 2; done
    echo 'GUEST did not answer within minutes: started again' >&2
    virsh -q destroy GUEST; virsh -q start GUEST
done
exit 1"""


class Lab:
    """One that is booted here, or with `keep` one that an earlier run kept."""

    def __init__(self, keep: bool):
        self.keep = keep
        self.way = None
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.login_port = free_port()
        self.login_url = f"http://127.0.0.1:{self.login_port}"

    def __enter__(self):
        # Told to end, this ends as after Ctrl-C, which no test takes for its own failure: with the lab down.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        kept = self.keep and self.nearmetal("exec", NAME, "--", "true", check=False).returncode == 0
        if not kept:
            # One that somebody else has up is refused here, and stays.
            self.boot()
        try:
            self.install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.cut()
        if not self.keep:
            self.nearmetal("down", NAME, check=False)

    def boot(self):
        for last in (False, True):
            done = self.nearmetal("up", NAME, "--with", "cockpit", check=False, stderr=subprocess.PIPE)
            print(done.stderr, file=sys.stderr)
            if done.returncode == 0:
                return
            # Emulation loses an interrupt now and then; as in the lab cases, such a lab is booted once more.
            if last or " did not answer over " not in done.stderr:
                sys.exit(done.returncode)

    def nearmetal(self, *words, check=True, **more) -> subprocess.CompletedProcess:
        return subprocess.run([NEARMETAL, "lab", *words], check=check, text=True, timeout=4 * LIMIT, **more)

    def sh(self, script: str, check=True) -> str:
        """Runs a script in the lab; what it printed."""
        done = self.nearmetal("exec", NAME, "--timeout", str(LIMIT), "--", "sh", "-c", script, check=False, capture_output=True)
        if check and done.returncode:
            raise AssertionError(f"`{script}` ended with {done.returncode} in the lab: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def install(self):
        """Programs, page and guest; and cockpit-ws, with a session of root's."""
        names = ("nearmetal", "nearmetal-libvirt", "nearmetal-probe")
        # A program that runs can be removed, and not written to.
        self.sh(f"cd {PROGRAMS} && rm -f {' '.join(names)}; rm -rf {PAGES}/nearmetal; systemctl -q stop check-cockpit 2>/dev/null; true")
        for name in names:
            self.nearmetal("push", NAME, NEARMETAL.parent / name, f"{PROGRAMS}/{name}")
        self.nearmetal("push", NAME, ROOT / "cockpit/page", f"{PAGES}/nearmetal")
        self.nearmetal("push", NAME, ROOT / "lab/domains/found.xml", "/root/found.xml")
        program = cockpit_ws(lambda path: self.sh(f"test -x {path} && echo there", check=False))
        self.sh(f"systemd-run --quiet --collect --unit=check-cockpit --setenv=HOME=/root --setenv=PATH=$PATH "
                f"{program} {' '.join(WS_OPTIONS)} --port={PORT}")
        # Labs do without logind; Cockpit's bridge ends without it when administrative access is turned on.
        self.sh("systemctl -q unmask systemd-logind dbus-org.freedesktop.login1 2>&1; systemctl start systemd-logind")
        self.sh(f"id {USER} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash --groups sudo {USER}; "
                f"echo '{USER}:{PASSWORD}' | chpasswd && systemctl start cockpit.socket")
        self.forward()

    def forward(self):
        """Brings the lab's port here, through a connection of its own: what cuts it cuts nothing else."""
        config = WORK / "lab.ssh"
        config.write_text(self.nearmetal("ssh-config", NAME, capture_output=True).stdout)
        self.way = subprocess.Popen(["ssh", "-F", config, "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes", "-N",
                                     "-L", f"127.0.0.1:{self.port}:127.0.0.1:{PORT}",
                                     "-L", f"127.0.0.1:{self.login_port}:127.0.0.1:{LOGIN_PORT}", NAME], stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not (answers(self.port) and answers(self.login_port)):
            if self.way.poll() is not None or time.monotonic() > end:
                raise AssertionError("ssh does not bring the lab's Cockpit to this machine")
            time.sleep(0.2)

    def cut(self):
        """Nothing of the lab can be reached until `forward`."""
        if self.way:
            self.way.kill()
            self.way.wait()
            self.way = None

    def kill(self, command: str):
        """Kills the program in the lab that runs exactly this."""
        self.sh(f"pkill -KILL -xf '{command}'")

    def found(self, guest: str):
        """The guest as people have it: defined, running, its agent answering, and nothing in force."""
        self.sh("rm -rf /var/lib/nearmetal /etc/systemd/system/nearmetal-boot.service; "
                "for d in $(virsh list --name); do virsh -q destroy $d; done; "
                "for d in $(virsh list --all --name); do virsh -q undefine $d; done; "
                "for n in /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages; do echo 0 > $n; done; "
                "virsh -q define /root/found.xml && virsh -q start web1")
        self.wait_for_agent(guest)

    def is_clean(self) -> bool:
        """Whether nearmetal has nothing in force."""
        return self.sh("nearmetal rollback --list") == ""

    def wait_for_agent(self, guest: str):
        self.sh(WAIT_FOR_AGENT.replace("GUEST", guest))

    def state(self, guest: str) -> str:
        """All that an undo has to restore: definition, state, pins, pools, the boot unit, settings."""
        return self.sh(f"virsh dumpxml --inactive --security-info {guest}; virsh domstate {guest}; virsh -q vcpupin {guest}; "
                       f"virsh -q emulatorpin {guest}; grep -H . /sys/devices/system/node/node*/hugepages/*/nr_hugepages; "
                       "ls /etc/systemd/system/nearmetal-boot.service 2>&1; sysctl -a 2>/dev/null | grep -E '^(kernel.numa|vm.(swapp|nr_|zone))'; "
                       "cat /sys/kernel/mm/ksm/run /sys/kernel/mm/transparent_hugepage/enabled; true")
