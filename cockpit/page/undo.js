// Undoing a transaction, wherever one is shown.

import { busy, button, fill, h, mark, problem, words } from "./dom.js";
import { run } from "./run.js";

// A button that asks in place, then rolls back; what came of it goes into `place`. `done` gets it too, for whoever clears that place.
export function undoButton(number, place, done = () => {}) {
    const box = h("div", { class: "undo" });
    const id = `restart-${number}-${Math.random().toString(36).slice(2)}`;
    const ask = () => {
        const restart = h("input", { type: "checkbox", id });
        const yes = button(`Undo transaction ${number}`, () => undo(number, restart.checked, place, done), "danger");
        fill(box,
            h("p", null, restart, " ", h("label", { for: id }, "Shut down guests that run with the new definition, and start those that ran before")),
            yes, " ", button("Keep it", begin));
        yes.focus();
    };
    const begin = () => fill(box, button("Undo…", ask, "secondary", { "aria-label": `Undo transaction ${number}` }));
    begin();
    return box;
}

async function undo(number, restart, place, done) {
    fill(place, busy(`Undoing transaction ${number}…`));
    const args = ["rollback", "--transaction", String(number), "--format", "json", restart ? "--restart" : "--keep-running"];
    const ended = await run(args, { superuser: "require" });
    if (ended.failure) {
        fill(place, problem("This could not be undone", ended.failure), undoButton(number, place, done));
        return;
    }
    const report = ended.document("nearmetal.rollback/1");
    const outcome = h("div", null,
        h("h4", { tabindex: "-1" }, mark(report.left.length ? "unsure" : "good", `Transaction ${report.transaction} is undone`)),
        h("ul", null, [...report.left, ...report.notes].map(note => h("li", null, words(note)))));
    fill(place, outcome);
    outcome.querySelector("h4").focus();
    done(outcome);
}
