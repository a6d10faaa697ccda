// An apply while it happens, and what was read back.

import { add, fill, h, mark, name, plural, problem, words } from "./dom.js";
import { checks, tally } from "./checks.js";
import { run } from "./run.js";
import { undoButton } from "./undo.js";

const warn = event => event.preventDefault();

// Title and text of an apply that did not come to its end.
function cutOff(ended) {
    const journal = "nearmetal wrote every change to its journal before it made it";
    // First: Cockpit hands over what a killed program had said until then as the message of its end.
    if (ended.signal)
        return ["nearmetal was ended while it made changes", `${journal} (signal ${ended.signal}).`];
    if (ended.code !== null || ended.message)
        return ["The plan was not applied", ended.failure || "nearmetal said nothing more"];
    // Cockpit lets it go on; whoever ends the session ends it.
    return ["The connection closed while changes were made", `${journal} (${ended.problem}). It may still be at work on the host.`];
}

// Applies the plan in `text`, and shows each step in `place`.
export async function applying(text, flags, place) {
    const said = h("p", { role: "status", class: "busy" }, "Checking once more…");
    const steps = h("ol", { class: "steps" });
    const notes = h("ul", { class: "muted" });
    fill(place, h("h3", { tabindex: "-1" }, "Applying"), said, steps, notes);
    // What was checked before is folded away: the steps are what to look at now.
    place.closest("section").querySelectorAll("details").forEach(details => details.open = false);
    place.scrollIntoView({ block: "start" });
    place.querySelector("h3").focus({ preventScroll: true });
    let items = [];
    let current = -1;
    let end = null;
    const state = (at, kind, word) => items[at]?.firstChild.replaceWith(mark(kind, word));
    const hear = line => {
        let event;
        try {
            event = JSON.parse(line);
        } catch {
            add(notes, h("li", null, line));
            return;
        }
        if (event.event === "begun") {
            items = event.changes.map(what => h("li", null, mark("info", "waiting"), " ", words(what)));
            fill(steps, ...items);
        } else if (event.event === "change") {
            state(current, "good", "done");
            current = event.number - 1;
            state(current, "info", "now");
            fill(said, `${event.number} of ${items.length}: `, ...words(event.what));
        } else if (event.event === "note") {
            add(notes, h("li", null, words(event.text)));
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
        add(place, problem(...cutOff(ended)),
        h("p", null, h("a", { href: "#/in-force" }, "See what is in force, and undo it")));
        return;
    }
    state(current, "good", "done");
    const untold = tally(end.verifications, "cannot-tell");
    const verdict = end.rolled_back ? mark("bad", "Rolled back: the read-back differs from the plan")
        : end.mismatches ? mark("bad", `Applied, but ${plural(end.mismatches, "check")} of the read-back ${end.mismatches === 1 ? "differs" : "differ"} from the plan`)
            : untold ? mark("unsure", `Applied; ${plural(untold, "check")} of the read-back cannot be told yet`)
                : mark("good", "Applied, and read back from the kernel");
    add(place, h("div", { role: "status" }, h("h3", { tabindex: "-1" }, verdict)),
        end.verifications.map(one => h("div", null, h("h4", null, name(one.guest)), checks(one))));
    if (end.transaction !== null && !end.rolled_back) {
        const undone = h("div", null);
        add(undone, undoButton(end.transaction, undone));
        add(place, undone);
    }
    place.scrollIntoView({ block: "start" });
}
