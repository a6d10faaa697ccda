// What doctor found, its fixes, and their undo.

import { add, busy, button, fill, h, mark, name, plural, problem, table, words } from "./dom.js";
import { run } from "./run.js";
import { undoButton } from "./undo.js";

const KINDS = { fault: "bad", loss: "bad", decide: "unsure", note: "info" };
const OUTCOMES = { "cured": "good", "next-start": "good", "not-cured": "bad", "unknown": "unsure", "refused": "bad" };

export async function findings(body) {
    const list = h("div", null, busy("Looking for what slows guests…"));
    add(body, list);
    await look(list);
}

async function look(list) {
    // A definition that cannot be read hides no finding elsewhere.
    const found = (await run(["doctor", "--format", "json"])).whatThereIs("nearmetal.doctor/1");
    const again = button("Look again", async () => {
        fill(list, busy("Looking again…"));
        await look(list).catch(error => fill(list, problem("This could not be read", error.message)));
    });
    fill(list, h("p", { role: "status" }, found.summary), again);
    if (found.domains_unknown)
        add(list, h("div", { class: "box unsure" }, h("h3", null, "Domains were not checked"), h("p", null, found.domains_unknown)));
    for (const text of found.errors)
        add(list, problem("A definition could not be read", text));
    // One card a rule: a rule is fixed as a whole.
    for (const [rule, all] of grouped(found.findings))
        add(list, card(rule, all));
    if (found.cannot_tell.length)
        add(list, h("details", null, h("summary", null, `${plural(found.cannot_tell.length, "rule")} could not be checked`),
            h("ul", null, found.cannot_tell.map(one => h("li", null, h("code", null, one.rule), `: missing ${one.missing.join(", ")}`)))));
}

function grouped(all) {
    const groups = new Map();
    for (const one of all)
        groups.set(one.rule, [...groups.get(one.rule) ?? [], one]);
    return groups;
}

function card(rule, all) {
    const [first] = all;
    const curable = all.some(one => one.objects.some(object => object.cures?.length));
    const place = h("div", null);
    const rows = all.flatMap(one => one.objects.map(object => [where(one.scope), object.what, object.found, object.wanted]));
    const { fix } = first;
    return h("article", { class: "card", "aria-label": first.title },
        h("h3", null, mark(KINDS[first.severity] ?? "info", first.severity), " ", first.title),
        h("p", { class: "muted" }, h("code", null, rule), first.worth ? `: ${first.worth}` : ""),
        table(`What breaks ${rule}`, ["Where", "What", "Found", "Wanted"], rows),
        h("dl", { class: "facts" },
            h("div", null, h("dt", null, "Fix now"), h("dd", null, words(fix.live ?? "not while it runs"))),
            h("div", null, h("dt", null, "Permanent fix"), h("dd", null, words(fix.persistent))),
            h("div", null, h("dt", null, "Needs"), h("dd", null, fix.needs.join(", ").replaceAll("-", " "))),
            h("div", null, h("dt", null, "Undo"), h("dd", null, words(fix.undo)))),
        curable ? button("Show the changes", () => preview(rule, place), "secondary", { "aria-label": `Show the changes that fix ${rule}` })
            : h("p", { class: "muted" }, "nearmetal does not fix this by itself: a person decides."),
        place);
}

const where = scope => scope.kind === "host" ? "host" : h("span", null, name(scope.name), scope.which === "both" ? "" : ` (${scope.which})`);

async function preview(rule, place) {
    fill(place, busy("Checking what would change…"));
    try {
        const ended = await run(["doctor", "--fix", rule, "--dry-run", "--format", "json"], { superuser: "require" });
        const planned = ended.whatThereIs("nearmetal.doctor-fix/1");
        const begin = planned.changes.length
            ? button(`Make ${plural(planned.changes.length, "change")}`, () => carryOut(rule, place), "primary") : h("p", null, "Nothing to change now.");
        fill(place, h("h4", { tabindex: "-1" }, "Changes"),
            h("ol", null, planned.changes.map(change => h("li", null, words(change)))),
            planned.lifetimes.map(text => h("p", { class: "muted" }, text)), objects(planned), begin);
        place.querySelector("h4").focus();
    } catch (error) {
        fill(place, problem("The fix could not be checked", error.message));
    }
}

const objects = report => table("Objects of the finding", ["Object", "Outcome", "Why"], report.objects.map(row =>
    [row.object.what, mark(OUTCOMES[row.outcome] ?? "info", row.outcome.replaceAll("-", " ")), words(row.why ?? "")]));

function verdict(report) {
    if (report.mismatches)
        return mark("bad", "Not all of it took effect");
    const unknown = report.objects.filter(row => row.outcome === "unknown").length;
    if (unknown)
        return mark("unsure", `Done, but ${plural(unknown, "object")} cannot be checked again`);
    const left = report.objects.filter(row => !["cured", "next-start"].includes(row.outcome)).length;
    return left ? mark("unsure", `Done and read back, but for ${plural(left, "object")} that nearmetal did not fix`) : mark("good", "Done and read back");
}

async function carryOut(rule, place) {
    fill(place, busy("Making the changes…"));
    const ended = await run(["doctor", "--fix", rule, "--yes", "--format", "json"], { superuser: "require" });
    let report = null;
    try {
        report = ended.whatThereIs("nearmetal.doctor-fix/1");
    } catch (error) {
        fill(place, problem("The fix did not come to its end", error.message),
            h("p", null, h("a", { href: "#/in-force" }, "See what is in force, and undo it")));
        return;
    }
    fill(place, h("h4", { tabindex: "-1" }, verdict(report)),
        ended.failure ? problem("Not all of it could be checked", ended.failure) : "", objects(report), report.new_findings.map(text => h("p", { class: "box bad" }, `New: ${text}`)),
        report.transaction === null ? "" : undoButton(report.transaction, place));
    place.querySelector("h4").focus();
}
