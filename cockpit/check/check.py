"""The page in Cockpit, clicked through in Chromium with a nearmetal that is played: one test a sentence. Started by `run`, which
installs what it takes.

    check.py WORK ROOT NEARMETAL [AXE]

WORK is a directory to work in, ROOT the sources, NEARMETAL the program, AXE axe-core's axe.min.js.
"""

import sys
import time

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import job
import machine
import page
from stand_in import BIN, Cockpit, Host


class Played(job.Job):
    machine_says = ("Intel(R) Xeon(R) Gold 6230", "2 packages, 4 nodes, 40 cores, 80 PUs")
    findings_say = ("web2 (defined)",)
    measurements_say = ("latest 0.97× (0.96–0.99): slower", "failed: the guest went away")
    secret = "hunter2"

    @classmethod
    def setUpClass(cls):
        cls.host = Host()
        cls.cockpit = Cockpit()
        cls.url = cls.cockpit.url
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.cockpit.end()

    def setUp(self):
        super().setUp()
        self.host.be(4)

    # What is behind the page.

    def differ(self):
        self.host.wrong(drift=True)
        return ("PUs 0-79",)

    def begin_and_kill(self):
        self.host.be(4, wrong="dies")
        self.begin()

    def begin_and_go_away(self):
        self.host.be(4, wrong="hangs")
        self.begin()
        self.sees("2 of 3")
        self.script("cockpit.transport.close('disconnected')")

    def come_back(self):
        """It was never away: the page lost it."""

    def goes_on(self):
        self.sees("unfinished")

    def is_as_found(self):
        self.assertEqual(self.host.in_force(), [])

    # Tests.

    def test_four_hundred_guests_are_drawn_within_a_second(self):
        self.host.be(400)
        self.open("machine")
        self.until(lambda: self.script("return performance.getEntriesByName('nearmetal:drawn').length"), "drawn")
        took = self.script("return performance.getEntriesByName('nearmetal:drawn').at(-1).duration")
        self.assertEqual(self.script("return document.querySelectorAll('table.guests tbody tr').length"), 400)
        self.assertGreater(self.script("return document.querySelector('.picture img').naturalWidth"), 0)
        print(f"    400 guests: {took:.0f} ms from nearmetal's answer to the screen")
        self.shot("400-guests")
        search = self.driver.find_element(By.ID, "filter")
        search.send_keys("web39")
        self.sees("5 of 400 guests")
        self.kept_the_rules()

    def test_of_two_checks_the_newest_is_shown(self):
        # The refusal of the first choice arrives after the answer to the second.
        self.host.be(4, slow_refusal=4)
        self.open("plan", "?domain=web1")
        self.sees("Plan for web1")
        self.driver.find_element(By.ID, "how-1").click()
        self.sees("Apply 3 changes")
        time.sleep(6)
        self.sees("Apply 3 changes")
        self.assertNotIn("only a restart changes", self.text())

    def test_hostile_names_are_text_everywhere(self):
        self.host.be(400)
        self.open("machine")
        shown = self.script("return [...document.querySelectorAll('table.guests tbody th bdi')].map(one => one.textContent)")
        for name in machine.HOSTILE:
            self.assertIn(name, shown)
        self.assertEqual(self.script("return document.querySelectorAll('table img, table script, table b').length"), 0)
        # The large machine is full; these are planned on one with room.
        self.host.be(400, capture=self.host.roomy)
        for name in machine.HOSTILE:
            self.open("plan")
            self.script("document.getElementById('domain').value = arguments[0]", name)
            self.driver.find_element(By.CSS_SELECTOR, "form button").click()
            self.sees("Decisions, and why")
            self.assertEqual(self.script("return document.querySelector('h3 bdi').textContent"), name)
            self.driver.find_element(By.ID, "how-1").click()
            self.press("Apply 3 changes")
            self.sees("Applied, and read back from the kernel")
            self.kept_the_rules()
        self.open("in-force")
        self.assertIn(machine.HOSTILE[0], self.text())
        self.assertEqual(self.script("return document.title"), "nearmetal: In force")
        self.kept_the_rules()

    def test_every_word_given_to_the_program_is_a_word_of_its_own(self):
        self.host.be(400, capture=self.host.roomy)
        self.open("plan", "?domain=" + "%24%7BHOME%7D%20%24(id)%3B%20%60id%60")
        self.sees("Decisions, and why")
        self.assertIn(["plan", "--format", "json", "--", "${HOME} $(id); `id`"], self.host.log())

    def test_an_apply_that_refuses_shows_the_words_of_nearmetal(self):
        self.host.be(4, wrong="refuses")
        self.begin()
        self.sees("did not shut down within 120 s; everything was rolled back")
        self.kept_the_rules()

    def test_an_apply_that_comes_to_its_end_without_its_page_is_seen_to_end(self):
        self.begin_and_go_away()
        self.stopped("The connection closed while changes were made")
        self.host.work_on()
        self.open("in-force")
        self.sees("under way: nearmetal is at work on it")
        self.assertNotIn("Undo…", self.text())
        self.host.finish()
        self.until(lambda: "under way" not in self.text(), "the page says that it has ended")
        self.sees("plan of web1")
        self.kept_the_rules()
        self.undone()
        self.sees("? Transaction")
        self.sees("web1 keeps running, and gets its former definition when it next starts")

    def test_without_the_program_the_page_says_what_to_install(self):
        (BIN / "nearmetal").rename(BIN / "away")
        try:
            self.open("machine")
            self.sees("nearmetal is not installed on this host")
            self.sees("This could not be read")
        finally:
            (BIN / "away").rename(BIN / "nearmetal")

    def test_the_keyboard_alone_reaches_everything(self):
        self.open("plan")
        reached = []
        for _ in range(12):
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            reached.append(self.script("const at = document.activeElement; return at.id || at.textContent.slice(0, 20)"))
        for wanted in ("Machine", "Findings", "In force", "Measurements", "domain", "class", "Plan"):
            self.assertIn(wanted, reached)
        Select(self.driver.find_element(By.ID, "domain")).select_by_visible_text("web2")
        self.driver.find_element(By.CSS_SELECTOR, "form button").send_keys(Keys.ENTER)
        self.sees("Plan for web2")

    def test_axe_core_finds_nothing_serious_in_light_and_dark(self):
        for style in ("light", "dark"):
            self.open("machine")
            self.script("localStorage.setItem('shell:style', arguments[0])", style)
            for section in ("machine", "findings", "in-force", "measurements"):
                self.open(section)
                self.assertEqual(self.script("return document.documentElement.dataset.theme"), style)
                self.accessible(f"{section}, {style}")
                self.shot(f"{section}-{style}")
            self.host.be(4)
            self.begin()
            self.sees("Applied, and read back from the kernel")
            self.accessible(f"plan and apply, {style}")
            self.shot(f"applied-{style}")
        self.script("localStorage.removeItem('shell:style')")

    def test_a_narrow_page_scrolls_only_what_is_wide_by_nature(self):
        self.host.be(400)
        self.width(400)
        for section in ("machine", "findings", "in-force", "measurements"):
            self.open(section)
            wide = self.script("return document.documentElement.scrollWidth")
            self.assertLessEqual(wide, 400, section)
            self.shot(f"{section}-400px")
        self.host.be(4)
        self.open("plan", "?domain=web1")
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400)
        self.shot("plan-400px")


if __name__ == "__main__":
    sys.exit(not page.main())
