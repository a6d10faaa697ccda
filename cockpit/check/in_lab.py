"""The page in Cockpit, clicked through in Chromium with the real nearmetal, libvirt and a guest, in a lab. Started by `run --lab`.

    in_lab.py WORK ROOT NEARMETAL [AXE]

KEEP=1 leaves the lab running, for the next run with KEEP=1.
"""

import os
import sys

import job
import page
from lab import NAME, Lab
from login import Login

APPLY = "nearmetal apply - --yes --progress --restart"


class Real(job.Job):
    lab: Lab
    before: str | None = None
    patience = 300
    pictures = "lab-"
    machine_says = ("4 packages, 4 nodes, 12 cores, 12 PUs",)
    findings_say = ("web1",)
    measurements_say = ("Nothing was measured here yet",)

    def setUp(self):
        super().setUp()
        # A test that undid all it did leaves the guest as the next one wants it, and spares it a boot.
        if Real.before is None or not self.lab.is_clean() or self.lab.state(self.guest) != Real.before:
            self.lab.found(self.guest)
            Real.before = self.lab.state(self.guest)

    # What is behind the page.

    def differ(self):
        """Somebody pins a vCPU elsewhere."""
        planned = int(self.lab.sh(f"virsh -q vcpupin {self.guest} --vcpu 1 | awk '{{print $2}}'"))
        elsewhere = (planned + 6) % 12
        self.lab.sh(f"virsh -q vcpupin {self.guest} 1 {elsewhere} --live")
        return ("vCPU 1 (thread", f"PUs {planned}", f"PUs {elsewhere}")

    def begin_and_kill(self):
        self.begin_and_wait()
        self.lab.kill(APPLY)

    def begin_and_go_away(self):
        self.begin_and_wait()
        self.lab.cut()

    def begin_and_wait(self):
        """Begins, until the guest is being shut down: the first change that takes seconds."""
        self.begin()
        at_hand = "return [...document.querySelectorAll('.steps li')].map(one => one.innerText).find(text => text.startsWith('• now'))"
        self.until(lambda: (self.script(at_hand) or "").startswith("• now shut down"), "the guest is being shut down")

    def come_back(self):
        self.lab.forward()

    def goes_on(self):
        """Cockpit has let nearmetal go on, and the page sees when it ends."""
        self.sees(f"plan of {self.guest}")
        self.until(lambda: "under way" not in self.text(), "the apply comes to its end")
        self.assertNotIn("unfinished", self.text())

    def is_as_found(self):
        self.assertTrue(self.lab.is_clean())
        self.assertEqual(self.lab.state(self.guest), self.before)


if __name__ == "__main__":
    with Lab(keep=bool(os.environ.get("KEEP"))) as lab:
        Real.lab, Real.url = lab, lab.url
        Login.lab, Login.url = lab, lab.login_url
        passed = page.main()
    if lab.keep:
        print(f"the lab stays: nearmetal lab exec {NAME} -- …; nearmetal lab down {NAME} ends it", file=sys.stderr)
    sys.exit(not passed)
