"""The page in Cockpit, clicked through in Chromium: one test a sentence. Started by `run`, which installs what it takes.

    check.py WORK ROOT NEARMETAL [AXE]

WORK is a directory to work in, ROOT the sources, NEARMETAL the program, AXE axe-core's axe.min.js.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import machine

WORK, ROOT, NEARMETAL = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
AXE = pathlib.Path(sys.argv[4]).read_text() if len(sys.argv) > 4 else None
PAGE = ROOT / "cockpit/page"
BIN = WORK / "bin"
PATIENCE = 30


def definition(name: str) -> str:
    """A definition of this name, with a password that no page may show."""
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if name == "web2":
        # Written by hand, with what doctor finds and can fix.
        return re.sub("<name>.*?</name>", f"<name>{escaped}</name>", (ROOT / "fixtures/domains/hand-written-minimal.xml").read_text())
    text = (ROOT / "fixtures/domains/virt-install.xml").read_text()
    text = text.replace("<name>debian12</name>", f"<name>{escaped}</name>")
    return text.replace("<memory unit='KiB'>4194304", "<memory unit='KiB'>2097152").replace(
        "<currentMemory unit='KiB'>4194304", "<currentMemory unit='KiB'>2097152").replace(
        "  </devices>", "    <graphics type='vnc' passwd='hunter2'/>\n  </devices>")


class Host:
    """The stand-in's files: which machine there is, and what goes wrong."""

    def __init__(self):
        shutil.rmtree(BIN, ignore_errors=True)
        BIN.mkdir(parents=True)
        shutil.copy(ROOT / "cockpit/check/nearmetal", BIN / "nearmetal")
        self.names = {}
        for guests in (4, 400):
            tree = WORK / f"machine-{guests}"
            shutil.rmtree(tree, ignore_errors=True)
            tree.mkdir()
            self.names[guests] = machine.make(tree, guests, ROOT / "fixtures")
        self.roomy = str(WORK / "machine-4")
        definitions = {}
        for number, name in enumerate(["web1", "web2", *machine.HOSTILE]):
            path = WORK / f"definition-{number}.xml"
            path.write_text(definition(name))
            definitions[name] = str(path)
        self.base = {"real": str(NEARMETAL), "definitions": definitions, "history": str(ROOT / "cockpit/check/history.json"),
                     "verification": str(ROOT / "fixtures/results/job-sample/verification.json")}
        self.be(4)

    def be(self, guests: int, **more):
        (BIN / "state.json").unlink(missing_ok=True)
        self.wrong(guests, **more)

    def wrong(self, guests: int = 4, **more):
        scenario = {**self.base, "capture": str(WORK / f"machine-{guests}"), "domains": self.names[guests], **more}
        (BIN / "scenario.json").write_text(json.dumps(scenario))

    def log(self) -> list:
        path = BIN / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cockpit:
    """cockpit-ws on the loopback with a session of this user; no login, no TLS."""

    def __init__(self):
        data = WORK / "data/cockpit"
        data.mkdir(parents=True, exist_ok=True)
        link = data / "nearmetal"
        if not link.is_symlink():
            link.symlink_to(PAGE)
        self.port = free_port()
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "XDG_DATA_HOME": str(WORK / "data"), "HOME": str(WORK)}
        program = next(path for path in ("/usr/lib/cockpit/cockpit-ws", "/usr/libexec/cockpit-ws") if os.path.exists(path))
        self.process = subprocess.Popen(
            [program, "--no-tls", "--address=127.0.0.1", f"--port={self.port}", "--local-session=cockpit-bridge"],
            env=environment, stderr=(WORK / "cockpit-ws.log").open("w"), start_new_session=True)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.1)
        self.url = f"http://127.0.0.1:{self.port}"

    def end(self):
        self.process.terminate()
        self.process.wait(20)


def browser() -> webdriver.Chrome:
    options = Options()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
                 "--no-first-run", "--disable-background-networking", f"--user-data-dir={WORK / 'profile'}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium")
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    driver.set_script_timeout(60)
    # Before any page's own script: what the policy forbids is noted.
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
        window.violations = [];
        document.addEventListener("securitypolicyviolation", event =>
            window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));"""})
    return driver


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.host = Host()
        cls.cockpit = Cockpit()
        cls.driver = browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.cockpit.end()

    def setUp(self):
        self.width(1280)
        self.host.be(4)

    # Helpers.

    def width(self, pixels: int, height: int = 900):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def open(self, section: str = "machine", query: str = ""):
        self.driver.get("about:blank")
        self.driver.get(f"{self.cockpit.url}/cockpit/@localhost/nearmetal/index.html#/{section}{query}")
        self.ready(section)

    def ready(self, section: str):
        self.until(lambda: self.script("return document.documentElement.dataset.ready") == section, f"section {section} is ready")

    def until(self, condition, what: str, patience: float = PATIENCE):
        try:
            return WebDriverWait(self.driver, patience, 0.1).until(lambda _: condition())
        except Exception as error:
            raise AssertionError(f"{what}: not within {patience} s; the page says: {self.text()[:1500]}") from error

    def script(self, text: str, *arguments):
        return self.driver.execute_script(text, *arguments)

    def text(self) -> str:
        return self.script("return document.body?.innerText ?? ''")

    def sees(self, words: str):
        self.until(lambda: words in self.text(), f"the page says `{words}`")

    def press(self, label: str):
        find = f"//button[starts-with(normalize-space(), '{label}')]"
        button = self.until(lambda: next(iter(self.driver.find_elements(By.XPATH, find)), None), f"a button `{label}`")
        self.script("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()

    def shot(self, name: str):
        self.driver.save_screenshot(str(WORK / f"{name}.png"))

    def kept_the_rules(self):
        """No script of a name ran, the policy was kept, nothing was logged as an error."""
        self.assertEqual(self.script("return window.violations"), [])
        # What was meant to be an element, or nothing.
        for wrong in ("[object", "undefined", "\nnull", "NaN"):
            self.assertNotIn(wrong, self.text())
        logged = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]
        self.assertEqual(logged, [])

    def accessible(self, what: str):
        """axe-core finds nothing serious."""
        if AXE is None:
            self.skipTest("axe-core is not there")
        self.script(AXE)
        found = self.driver.execute_async_script("const done = arguments[0]; axe.run(document).then(done, error => done({error: String(error)}))")
        self.assertNotIn("error", found)
        serious = [f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes']][:3]}"
                   for one in found["violations"] if one["impact"] in ("serious", "critical")]
        self.assertEqual(serious, [], what)
        minor = [one["id"] for one in found["violations"]]
        print(f"    axe-core, {what}: {len(found['passes'])} rules passed, {len(minor)} findings below serious {minor}")

    # Tests.

    def test_the_shell_lists_the_page_and_shows_it(self):
        self.driver.get(f"{self.cockpit.url}/nearmetal")
        frame = self.until(lambda: next(iter(self.driver.find_elements(By.CSS_SELECTOR, "iframe[name*=nearmetal]")), None), "a frame of the page")
        self.until(lambda: "nearmetal" in self.text(), "the menu names it")
        self.driver.switch_to.frame(frame)
        self.ready("machine")
        self.sees("2 packages, 4 nodes, 40 cores, 80 PUs")
        self.driver.switch_to.default_content()
        self.shot("shell")

    def test_the_whole_job_for_one_guest(self):
        self.open("machine")
        self.sees("Intel(R) Xeon(R) Gold 6230")
        self.kept_the_rules()
        self.shot("machine")
        self.open("findings")
        self.sees("web2 (defined)")
        self.kept_the_rules()
        self.shot("findings")
        self.open("plan", "?domain=web1")
        self.sees("Plan for web1")
        self.sees("only a restart changes")
        self.driver.find_element(By.ID, "how-1").click()
        self.sees("Apply 3 changes")
        self.assertIn("+  <cputune>", self.text())
        self.assertNotIn("hunter2", self.text())
        self.shot("plan")
        self.press("Apply 3 changes")
        self.sees("Applied, and read back from the kernel")
        self.assertEqual(self.script("return [...document.querySelectorAll('.steps .mark')].map(one => one.textContent)"), ["✓ done"] * 3)
        self.sees("0 differ")
        self.sees("Undo…")
        self.assertEqual(self.script("return document.querySelectorAll('main h4 bdi').length"), 1)
        self.shot("applied")
        self.kept_the_rules()
        self.open("in-force")
        self.sees("plan of web1")
        self.press("Read back now")
        self.sees("Everything is as it was applied")
        self.host.wrong(drift=True)
        self.press("Read back now")
        self.sees("1 check differs from what was applied")
        self.sees("PUs 0-79")
        self.shot("drift")
        self.press("Undo…")
        self.press("Undo transaction 1")
        self.sees("Nothing is in force")
        self.kept_the_rules()
        self.open("measurements")
        self.sees("latest 0.97× (0.96–0.99): slower")
        self.sees("failed: the guest went away")
        self.shot("measurements")
        self.kept_the_rules()

    def test_a_finding_is_fixed_and_the_fix_undone(self):
        self.open("findings")
        self.press("Show the changes")
        self.press("Make ")
        self.sees("Done and read back")
        self.press("Undo…")
        self.press("Undo transaction 1")
        self.sees("Transaction 1 is undone")
        self.kept_the_rules()

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

    def begin(self, **more):
        self.host.be(4, **more)
        self.open("plan", "?domain=web1")
        self.sees("only a restart changes")
        self.driver.find_element(By.ID, "how-1").click()
        self.press("Apply 3 changes")

    def test_an_apply_that_is_killed_says_where_it_stopped_and_can_be_undone(self):
        self.begin(wrong="dies")
        self.sees("The connection closed while changes were made")
        self.assertEqual(self.script("return [...document.querySelectorAll('.steps .mark')].map(one => one.textContent)"),
                         ["✓ done", "✗ not finished", "• waiting"])
        self.shot("killed")
        self.driver.find_element(By.LINK_TEXT, "See what is in force, and undo it").click()
        self.ready("in-force")
        self.sees("unfinished")
        self.press("Undo…")
        self.press("Undo transaction 1")
        self.sees("Nothing is in force")
        self.kept_the_rules()

    def test_an_apply_that_refuses_shows_the_words_of_nearmetal(self):
        self.begin(wrong="refuses")
        self.sees("did not shut down within 120 s; everything was rolled back")
        self.kept_the_rules()

    def test_a_channel_that_closes_during_an_apply_is_said_and_can_be_undone(self):
        self.begin(wrong="hangs")
        self.sees("2 of 3")
        self.script("cockpit.transport.close('disconnected')")
        self.sees("The connection closed while changes were made")
        self.shot("closed")
        self.open("in-force")
        self.sees("unfinished")

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
    only = os.environ.get("ONLY")
    unittest.main(argv=["check", "-v", *(["-k", only] if only else [])])
