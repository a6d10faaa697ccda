// What is in force, whether it still holds, and its undo.

import { add, busy, button, fill, h, mark, moment, name, newest, plural, problem } from "./dom.js";
import { checks, tally } from "./checks.js";
import { read, run } from "./run.js";
import { undoButton } from "./undo.js";

export async function inForce(body) {
    const list = h("div", null, busy("Reading the journal…"));
    const drift = h("div", null);
    add(body, list, h("h3", null, "Does it still hold?"),
        h("p", { class: "muted" }, "nearmetal compares everything in force with the kernel: threads, pages, pools, disks, definitions and settings. Guests read a little from their disks."),
        button("Read back now", () => readBack(drift), "primary"), drift);
    await journal(list);
}

const LIST = ["rollback", "--list", "--format", "json"];
// How often an unfinished transaction is looked at again, in ms.
const AGAIN = 3000;

async function journal(list) {
    const isNewest = newest(list);
    const found = await read(LIST, "nearmetal.in-force/1");
    if (!isNewest())
        return;
    show(list, found);
    if (found.transactions.some(one => one.unfinished))
        watch(list, found, isNewest);
}

// What is unfinished may still be at work, as after a broken connection: when it ends, the list says so. A section that was left is
// watched no more.
async function watch(list, shown, isNewest) {
    for (;;) {
        await new Promise(done => setTimeout(done, AGAIN));
        if (!isNewest() || !list.isConnected)
            return;
        const now = await read(LIST, "nearmetal.in-force/1").catch(() => shown);
        // An undo that is under way shows what came of it itself.
        if (isNewest() && !list.querySelector(".busy") && JSON.stringify(now) !== JSON.stringify(shown)) {
            await journal(list).catch(() => {});
            return;
        }
    }
}

function state({ unfinished, at_work }) {
    if (!unfinished)
        return null;
    return at_work ? mark("unsure", "under way: nearmetal is at work on it") : mark("bad", "unfinished: it was interrupted, and can be undone");
}

// The list without what was undone, below what came of that.
async function shownAnew(list, outcome) {
    await journal(list).catch(() => {});
    list.prepend(outcome);
    outcome.querySelector("h4").focus();
}

function show(list, { transactions }) {
    const rows = transactions.map((one, at) => {
        const place = h("div", null);
        // The journal undoes the latest first.
        const undo = at === 0 && !one.at_work ? undoButton(one.number, place, outcome => shownAnew(list, outcome)) : null;
        if (undo)
            add(place, undo);
        return h("li", { class: "card" },
            h("h3", null, `${one.number}: ${one.what} `, state(one)),
            h("p", { class: "muted" }, moment(one.started)), place);
    });
    fill(list, rows.length
        ? h("ol", { class: "plain" }, rows)
        : h("p", null, "Nothing is in force: nearmetal has changed nothing here, or all of it was undone."));
}

// Green only where all was checked.
function verdict(found, failure) {
    if (found.length === 0)
        return failure ? "" : "Nothing is in force: nothing to check.";
    const [differ, untold] = [tally(found, "mismatch"), tally(found, "cannot-tell")];
    if (differ)
        return mark("bad", `${plural(differ, "check")} ${differ === 1 ? "differs" : "differ"} from what was applied`);
    if (untold)
        return mark("unsure", `Nothing differs from what was applied, and ${plural(untold, "check")} cannot be told`);
    return failure ? mark("unsure", "Nothing that was checked differs from what was applied") : mark("good", "Everything is as it was applied");
}

async function readBack(place) {
    fill(place, busy("Reading back from the kernel…"));
    const ended = await run(["verify", "--all", "--format", "json"], { superuser: "require" });
    let found = null;
    try {
        found = [ended.whatThereIs("nearmetal.verification/1")].flat();
    } catch (error) {
        fill(place, problem("This could not be read back", error.message));
        return;
    }
    fill(place, h("p", { role: "status" }, verdict(found, ended.failure)),
        ended.failure ? problem("Not all of it could be checked", ended.failure) : "",
        found.map(one => h("section", { class: "card" }, h("h4", null, name(one.guest)), h("p", { class: "muted" }, "read ", moment(one.taken)), checks(one))));
}
