"""A Cockpit whose nearmetal is played: cockpit-ws of this machine, and `nearmetal` of this directory before the real one."""

import json
import os
import re
import shutil
import subprocess
import time

import machine
from page import NEARMETAL, ROOT, WORK, WS_OPTIONS, answers, cockpit_ws, free_port

BIN = WORK / "bin"


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

    def in_force(self) -> list:
        return json.loads((BIN / "state.json").read_text())

    def work_on(self):
        """A nearmetal is at work on what is unfinished."""
        self.mark(at_work=True)

    def finish(self):
        """What is unfinished comes to its end."""
        self.mark(unfinished=False, at_work=False)

    def mark(self, **fields):
        (BIN / "state.json").write_text(json.dumps([{**one, **fields} for one in self.in_force()]))

    def log(self) -> list:
        path = BIN / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Cockpit:
    """cockpit-ws on the loopback with a session of this user."""

    def __init__(self):
        data = WORK / "data/cockpit"
        data.mkdir(parents=True, exist_ok=True)
        link = data / "nearmetal"
        if not link.is_symlink():
            link.symlink_to(ROOT / "cockpit/page")
        port = free_port()
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "XDG_DATA_HOME": str(WORK / "data"), "HOME": str(WORK)}
        self.process = subprocess.Popen([cockpit_ws(), *WS_OPTIONS, f"--port={port}"],
                                        env=environment, stderr=(WORK / "cockpit-ws.log").open("w"), start_new_session=True)
        for _ in range(100):
            if answers(port):
                break
            time.sleep(0.1)
        self.url = f"http://127.0.0.1:{port}"

    def end(self):
        self.process.terminate()
        self.process.wait(20)
