"""A page in Chromium, and what every test of it needs."""

import atexit
import os
import pathlib
import shutil
import socket
import sys
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

# The words that `run` starts each of the checks with: a directory to work in, the sources, the program, axe-core's axe.min.js.
WORK, ROOT, NEARMETAL = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
AXE = pathlib.Path(sys.argv[4]).read_text() if len(sys.argv) > 4 else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cockpit_ws(exists=os.path.exists) -> str:
    """Where this Debian has Cockpit's web server."""
    return next(path for path in ("/usr/lib/cockpit/cockpit-ws", "/usr/libexec/cockpit-ws") if exists(path))


# Without TLS and without a login: it listens on the loopback alone, and its session is that of the user who started it.
WS_OPTIONS = ["--no-tls", "--address=127.0.0.1", "--local-session=cockpit-bridge"]


def browser() -> webdriver.Chrome:
    options = Options()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
                 "--no-first-run", "--disable-background-networking", f"--user-data-dir={WORK / 'profile'}-{pathlib.Path(sys.argv[0]).stem}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium")
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    # Also after Ctrl-C, which leaves a class without its end.
    atexit.register(driver.quit)
    driver.set_script_timeout(60)
    # Before any page's own script: what the policy forbids is noted.
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
        window.violations = [];
        document.addEventListener("securitypolicyviolation", event =>
            window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));"""})
    return driver


class Page(unittest.TestCase):
    """What a test does with the page. Whoever inherits says in `url` where its Cockpit is."""

    # Seconds until the page has to say what is expected of it.
    patience = 30
    # What the names of its pictures begin with.
    pictures = ""
    url: str

    @classmethod
    def setUpClass(cls):
        cls.driver = browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()

    def setUp(self):
        self.width(1280)
        # What was logged before is not about this test: Cockpit's own shell asks for a font that Debian's package lacks.
        self.driver.get_log("browser")

    def width(self, pixels: int, height: int = 900):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def open(self, section: str = "machine", query: str = ""):
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/cockpit/@localhost/nearmetal/index.html#/{section}{query}")
        self.ready(section)

    def ready(self, section: str):
        self.until(lambda: self.script("return document.documentElement.dataset.ready") == section, f"section {section} is ready")

    def until(self, condition, what: str, patience: float | None = None):
        patience = patience or self.patience
        try:
            return WebDriverWait(self.driver, patience, 0.1).until(lambda _: condition())
        except Exception as error:
            self.shot("failed")
            raise AssertionError(f"{what}: not within {patience} s; the page says: {self.text()[:1500]}") from error

    def script(self, text: str, *arguments):
        return self.driver.execute_script(text, *arguments)

    def text(self) -> str:
        return self.script("return document.body?.innerText ?? ''")

    def sees(self, words: str):
        self.until(lambda: words in self.text(), f"the page says `{words}`")

    def press(self, label: str, within: str = ""):
        """Presses the first button whose label begins so, of all or of those below an XPath."""
        find = f"{within}//button[starts-with(normalize-space(), '{label}')]"
        button = self.until(lambda: next(iter(self.driver.find_elements(By.XPATH, find)), None), f"a button `{label}`")
        self.script("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()

    def shot(self, name: str):
        self.driver.save_screenshot(str(WORK / f"{self.pictures}{name}.png"))

    def kept_the_rules(self):
        """No script of a name ran, the policy was kept, nothing was logged as an error."""
        self.assertEqual(self.script("return window.violations"), [])
        # What was meant to be an element, or nothing.
        for wrong in ("[object", "undefined", "\nnull", "NaN"):
            self.assertNotIn(wrong, self.text())
        # Backticks are how nearmetal marks commands, paths and names; the page shows these as such. One of the hostile names has its own.
        raw = self.script("""
            const found = document.createTreeWalker(document.getElementById("main") ?? document.body, NodeFilter.SHOW_TEXT);
            const raw = [];
            while (found.nextNode())
                if (found.currentNode.data.replaceAll("`id`", "").includes("`") && !found.currentNode.parentElement.closest("bdi, pre, option"))
                    raw.push(found.currentNode.data);
            return raw;""")
        self.assertEqual(raw, [])
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


def main():
    """Runs the tests of the program; ONLY=word for those whose names contain it. True if all passed."""
    only = os.environ.get("ONLY")
    done = unittest.main(module="__main__", argv=["check", "-v", *(["-k", only] if only else [])], exit=False).result
    # No test at all is nothing that was seen.
    return done.wasSuccessful() and done.testsRun > 0
