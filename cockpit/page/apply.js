// An apply while it happens, and what was read back.

import { h, mark, name, plural, problem, words } from "./dom.js";
import { checks } from "./checks.js";
import { run } from "./run.js";
import { undoButton } from "./undo.js";

const warn = event => event.preventDefault();

// Applies the plan in `text`, and shows each step in `place`.
export async function applying(text, flags, place) {
    const said = h("p", { role: "status", class: "busy" }, "Checking once more…");
    const steps = h("ol", { class: "steps" });
    const notes = h("ul", { class: "muted" });
    place.replaceChildren(h("h3", { tabindex: "-1" }, "Applying"), said, steps, notes);
    place.querySelector("h3").focus();
    let items = [];
    let current = -1;
    let end = null;
    const state = (at, kind, word) => items[at]?.firstChild.replaceWith(mark(kind, word));
    const hear = line => {
        let event;
        try {
            event = JSON.parse(line);
        } catch {
            notes.append(h("li", null, line));
            return;
        }
        if (event.event === "begun") {
            items = event.changes.map(what => h("li", null, mark("info", "waiting"), " ", words(what)));
            steps.replaceChildren(...items);
        } else if (event.event === "change") {
            state(current, "good", "done");
            current = event.number - 1;
            state(current, "info", "now");
            said.replaceChildren(`${event.number} of ${items.length}: `, ...words(event.what));
        } else if (event.event === "note") {
            notes.append(h("li", null, words(event.text)));
        } else if (event.event === "ended") {
            end = event;
        }
    };
    window.addEventListener("beforeunload", warn);
    const ended = await run(["apply", "-", "--yes", "--progress", ...flags], { superuser: "require", input: text, line: hear });
    window.removeEventListener("beforeunload", warn);
    said.remove();
    if (!end) {
        state(current, "bad", "not finished");
        const gone = ended.code === null && !ended.message;
        place.append(problem(gone ? "The connection closed while changes were made" : "The plan was not applied",
            gone ? `nearmetal wrote every change to its journal before it made it (${ended.problem}).` : ended.failure || "nearmetal said nothing more"),
        h("p", null, h("a", { href: "#/in-force" }, "See what is in force, and undo it")));
        return;
    }
    state(current, "good", "done");
    const verdict = end.rolled_back ? mark("bad", "Rolled back: the read-back differs from the plan")
        : end.mismatches ? mark("bad", `Applied, but ${plural(end.mismatches, "check")} of the read-back differ from the plan`)
            : mark("good", "Applied, and read back from the kernel");
    place.append(h("div", { role: "status" }, h("h3", { tabindex: "-1" }, verdict)),
        end.verifications.map(one => h("div", null, h("h4", null, name(one.guest)), checks(one))));
    if (end.transaction !== null && !end.rolled_back) {
        const undone = h("div", null);
        undone.append(undoButton(end.transaction, undone));
        place.append(undone);
    }
}
