"""The whole job, as clicks: the same where nearmetal is played and where it is real. Whoever inherits says what is behind the page."""

import re

from selenium.webdriver.common.by import By

from page import Page

# How a plan is applied: the places of the choices on the page.
RESTART, LIVE_ONLY = 1, 2


class Job(Page):
    # Words of the section Machine, and of the section Findings.
    machine_says: tuple = ()
    findings_say: tuple = ()
    # Words of the section Measurements.
    measurements_say: tuple = ()
    # Words that a difference of the definition shows, and a secret that no page may show.
    difference_says = "+  <cputune>"
    secret: str | None = None
    guest = "web1"

    # What is behind the page.

    def differ(self) -> tuple:
        """Changes something behind nearmetal's back, and gives the words of the line that shows it."""
        raise NotImplementedError

    def begin_and_kill(self):
        """Begins an apply with a restart, which is killed in the middle."""
        raise NotImplementedError

    def begin_and_go_away(self):
        """The same, but the host goes away."""
        raise NotImplementedError

    def come_back(self):
        """The host is back."""
        raise NotImplementedError

    def goes_on(self):
        """What happened to the apply meanwhile, as In force shows it."""
        raise NotImplementedError

    def is_as_found(self):
        """What was undone left nothing behind."""
        raise NotImplementedError

    # Clicks.

    def planned(self, how: int) -> int:
        """Plans the guest and chooses how to apply; how many changes that takes."""
        self.open("plan", f"?domain={self.guest}")
        self.sees(f"Plan for {self.guest}")
        self.sees("only a restart changes")
        self.driver.find_element(By.ID, f"how-{how}").click()
        found = self.until(lambda: re.search(r"Apply (\d+) changes?", self.text()), "a button that applies")
        return int(found[1])

    def begin(self, how: int = RESTART) -> int:
        changes = self.planned(how)
        # Every state of the list of steps, however short.
        self.script("""
            window.states = [];
            new MutationObserver(() => {
                const now = [...document.querySelectorAll(".steps .mark")].map(one => one.textContent);
                if (now.length && String(now) !== String(window.states.at(-1)))
                    window.states.push(now);
            }).observe(document.getElementById("main"), { subtree: true, childList: true });""")
        self.press(f"Apply {changes} change")
        return changes

    def applied(self, how: int):
        """Applies, and sees each step and what was read back."""
        changes = self.begin(how)
        self.sees("Applied, and read back from the kernel")
        self.sees("0 differ")
        self.sees("Undo…")
        states = self.script("return window.states")
        self.assertEqual(states[-1], ["✓ done"] * changes)
        # Told while it happened: what is done stays done, and the step at hand is said.
        done = [state.count("✓ done") for state in states]
        self.assertEqual(done, sorted(done))
        at_hand = [state.index("• now") for state in states if "• now" in state]
        # Those that take no time may be told together; a shutdown and a start are not.
        self.assertGreaterEqual(len(set(at_hand)), 2 if how == RESTART else 1, states)
        for state, at in ((state, state.index("• now")) for state in states if "• now" in state):
            self.assertEqual(state, ["✓ done"] * at + ["• now"] + ["• waiting"] * (changes - at - 1))
        self.assertEqual(self.script("return [...document.querySelectorAll('main h4 bdi')].map(one => one.textContent)"), [self.guest])

    def marks(self) -> list:
        return self.script("return [...document.querySelectorAll('.steps .mark')].map(one => one.textContent)")

    def undo(self, restart: bool = False):
        self.press("Undo…")
        if restart:
            self.driver.find_element(By.CSS_SELECTOR, ".undo input[type=checkbox]").click()
        self.press("Undo transaction ")

    def undone(self, restart: bool = False):
        """The same in the section In force, with nothing left there."""
        self.undo(restart)
        self.sees("Nothing is in force")
        self.sees(" is undone")

    def drifts(self):
        """Read back as applied, then with a difference."""
        self.open("in-force")
        self.sees(f"plan of {self.guest}")
        self.press("Read back now")
        self.sees("Everything is as it was applied")
        words = self.differ()
        self.press("Read back now")
        self.until(lambda: re.search(r"\d+ checks? differs? from what was applied", self.text()), "the page says that something differs")
        rows = self.script("return [...document.querySelectorAll('[aria-label=\"Checks that differ\"] tbody tr')].map(one => one.innerText)")
        self.assertTrue(any(all(word in row for word in words) for row in rows), f"{words} are in none of {rows}")
        self.shot("drift")

    def stopped(self, words: str):
        """Of an apply that was cut off, the page says how and where."""
        self.sees(words)
        marks = self.marks()
        at = marks.index("✗ not finished")
        self.assertGreater(at, 0)
        self.assertEqual(marks, ["✓ done"] * at + ["✗ not finished"] + ["• waiting"] * (len(marks) - at - 1))

    # Tests.

    def test_the_shell_lists_the_page_and_shows_it(self):
        self.driver.get(f"{self.url}/nearmetal")
        frame = self.until(lambda: next(iter(self.driver.find_elements(By.CSS_SELECTOR, "iframe[name*=nearmetal]")), None), "a frame of the page")
        self.until(lambda: "nearmetal" in self.text(), "the menu names it")
        self.driver.switch_to.frame(frame)
        self.ready("machine")
        for words in self.machine_says:
            self.sees(words)
        self.driver.switch_to.default_content()
        self.shot("shell")

    def test_the_whole_job_for_one_guest(self):
        self.open("machine")
        for words in (*self.machine_says, self.guest):
            self.sees(words)
        self.kept_the_rules()
        self.shot("machine")
        self.open("findings")
        for words in self.findings_say:
            self.sees(words)
        self.kept_the_rules()
        self.shot("findings")
        self.planned(RESTART)
        self.assertIn(self.difference_says, self.text())
        if self.secret:
            self.assertNotIn(self.secret, self.text())
        self.shot("plan")
        self.applied(RESTART)
        self.shot("applied")
        self.kept_the_rules()
        self.drifts()
        self.undone(restart=True)
        self.kept_the_rules()
        self.is_as_found()
        self.open("measurements")
        for words in self.measurements_say:
            self.sees(words)
        self.shot("measurements")
        self.kept_the_rules()

    def test_what_can_change_while_it_runs_is_applied_and_undone_without_a_restart(self):
        self.applied(LIVE_ONLY)
        self.kept_the_rules()
        self.open("in-force")
        self.undone()
        self.is_as_found()

    def test_a_finding_is_fixed_and_the_fix_undone(self):
        self.open("findings")
        self.press("Show the changes")
        self.press("Make ")
        self.sees("Done and read back")
        self.undo()
        self.until(lambda: re.search(r"Transaction \d+ is undone", self.text()), "the page says that it is undone")
        self.kept_the_rules()
        self.is_as_found()

    def test_an_apply_that_is_killed_says_where_it_stopped_and_can_be_undone(self):
        self.begin_and_kill()
        self.stopped("nearmetal was ended while it made changes")
        self.sees("(signal KILL)")
        self.shot("killed")
        self.driver.find_element(By.LINK_TEXT, "See what is in force, and undo it").click()
        self.ready("in-force")
        self.sees("unfinished")
        self.undone(restart=True)
        self.kept_the_rules()
        self.is_as_found()

    def test_a_host_that_goes_away_during_an_apply_is_said_and_can_be_undone(self):
        self.begin_and_go_away()
        self.stopped("The connection closed while changes were made")
        self.sees("It may still be at work on the host")
        self.shot("closed")
        self.come_back()
        self.open("in-force")
        self.goes_on()
        self.undone(restart=True)
        self.is_as_found()
