"""A user of the host logs in by Cockpit's own page and turns administrative access on, as everybody does but the other checks."""

import re

from selenium.webdriver.common.by import By

from lab import PASSWORD, USER, Lab
from page import Page

FRAME = "iframe[name='cockpit1:localhost/nearmetal']"


class Login(Page):
    lab: Lab
    guest = "web1"
    patience = 300
    pictures = "lab-login-"

    def test_a_user_who_logs_in_is_shown_less_until_administrative_access_is_turned_on(self):
        self.lab.found(self.guest)
        before = self.lab.state(self.guest)
        self.log_in()
        self.in_the_page()
        self.sees("Limited access: nearmetal reads what this user may read")
        self.sees("12 cores")
        self.shot("limited")
        self.turn_administrative_access_on()
        self.in_the_page()
        self.until(lambda: "Limited access" not in self.text(), "the page says no more that access is limited")
        self.until(lambda: self.guest in self.text(), "the guests are read without a word of the user's")
        self.shot("administrative")
        self.script(f"location.hash = '#/plan?domain={self.guest}'")
        self.sees(f"Plan for {self.guest}")
        self.driver.find_element(By.ID, "how-2").click()
        self.press("Apply ")
        self.sees("Applied, and read back from the kernel")
        self.sees("0 differ")
        self.press("Undo…")
        self.press("Undo transaction ")
        self.until(lambda: re.search(r"Transaction \d+ is undone", self.text()), "the page says that it is undone")
        self.assertTrue(self.lab.is_clean())
        self.assertEqual(self.lab.state(self.guest), before)

    def log_in(self):
        self.driver.get(f"{self.url}/nearmetal")
        for field, word in (("login-user-input", USER), ("login-password-input", PASSWORD)):
            found = self.until(lambda: self.shown(By.ID, field), f"a field `{field}`")
            found.clear()
            found.send_keys(word)
        self.driver.find_element(By.ID, "login-button").click()

    def turn_administrative_access_on(self):
        self.driver.switch_to.default_content()
        self.press("Limited access")
        field = self.until(lambda: self.shown(By.CSS_SELECTOR, "[role=dialog] input[type=password]"), "a field for the password")
        field.send_keys(PASSWORD)
        self.press("Authenticate")
        self.sees("Administrative access")

    def in_the_page(self):
        """From the shell into the page that it shows."""
        self.driver.switch_to.default_content()
        self.driver.switch_to.frame(self.until(lambda: self.shown(By.CSS_SELECTOR, FRAME), "the page in the shell"))
        self.until(lambda: self.script("return document.documentElement.dataset.ready"), "the page is ready")

    def shown(self, by: str, what: str):
        return next((one for one in self.driver.find_elements(by, what) if one.is_displayed()), None)
