// Plan, differences, apply, read-back: the whole job for one guest.

import { add, busy, button, fill, h, mark, name, newest, plural, problem, table, words } from "./dom.js";
import { applying } from "./apply.js";
import { read, run } from "./run.js";

const CLASSES = ["general", "density", "throughput", "latency", "windows", "passthrough"];

export async function plan(body, _path, options) {
    add(body, h("p", { class: "muted" }, "nearmetal decides where a guest belongs, and says why. Planning changes nothing."));
    const waiting = busy("Asking which guests there are…");
    add(body, waiting);
    const facts = await read(["inspect", "--format", "json"], "nearmetal.host/1");
    waiting.remove();
    if (facts.domains === null)
        add(body, h("div", { class: "box unsure" }, h("h3", null, "libvirt was not asked"), h("p", null, facts.domains_unknown)));
    const known = facts.domains ?? [];
    if (!known.length) {
        if (facts.domains !== null)
            add(body, h("p", null, "There is no domain to plan."));
        return;
    }
    const domain = h("select", { id: "domain" }, known.map(one => h("option", { value: one.name, selected: one.name === options.domain }, one.name)));
    const klass = h("select", { id: "class" }, h("option", { value: "" }, "as the definition says"), CLASSES.map(word => h("option", { value: word }, word)));
    const result = h("div", null);
    const form = h("form", { class: "row", onsubmit: event => {
        event.preventDefault();
        planned(domain.value, klass.value, result);
    } },
    h("div", null, h("label", { for: "domain" }, "Guest"), domain), h("div", null, h("label", { for: "class" }, "Class"), klass),
    h("button", { type: "submit", class: "primary" }, "Plan"));
    add(body, form, result);
    if (options.domain)
        await planned(domain.value, klass.value, result);
}

async function planned(domain, klass, place) {
    fill(place, busy("Planning…"));
    const isNewest = newest(place);
    const ended = await run(["plan", "--format", "json", ...klass ? ["--class", klass] : [], "--", domain]);
    if (!isNewest())
        return;
    if (ended.failure) {
        fill(place, problem("This could not be planned", ended.failure));
        return;
    }
    const text = ended.stdout;
    const document = ended.document("nearmetal.plan/1");
    const placement = document.plan.placements.find(one => one.guest === domain);
    const head = h("h3", { tabindex: "-1" }, "Plan for ", name(domain));
    fill(place, head);
    head.focus();
    if (!placement) {
        add(place, problem("The guest does not fit here", document.plan.blocked.map(one => `${one.problem}\nto place it: ${one.remedy}`).join("\n")));
        return;
    }
    const change = document.domains.find(one => one.name === domain);
    add(place,
        h("details", { open: true }, h("summary", null, "Decisions, and why"), table("Decisions", ["What", "Choice", "Because"],
            placement.reasons.map(one => [one.subject, one.choice, h("span", null, one.because, one.source && h("span", { class: "muted" }, ` (${one.source})`))]))),
        parts("When the guest starts", change?.needs_restart), parts("While it runs", change?.live_now));
    const check = h("div", null);
    add(place, h("h3", null, "Changes to the host"), options(change, text, check), check);
    await checked(text, [], check);
}

const parts = (head, list) => list?.length
    ? h("details", null, h("summary", null, `${head}: ${plural(list.length, "change")}`),
        table(head, ["What", "Change", "Why"], list.map(part => [part.what, part.change, part.why])))
    : null;

// How it is applied; each choice is checked again at once.
function options(change, text, place) {
    const choices = [
        ["", "Apply only if no guest has to restart"],
        ["--restart", "Restart the guest (agent, then ACPI, never by force)"],
        ["--live-only", "Change only what can change while it runs; the rest takes effect at its next start"],
    ];
    return h("fieldset", null, h("legend", null, "How"), choices.map(([flag, label], at) => {
        const id = `how-${at}`;
        const radio = h("input", { type: "radio", name: "how", id, value: flag, checked: at === 0,
            onchange: () => checked(text, flag ? [flag] : [], place) });
        return h("div", null, radio, " ", h("label", { for: id }, label));
    }));
}

async function checked(text, flags, place) {
    fill(place, busy("Checking what would change…"));
    const isNewest = newest(place);
    const ended = await run(["apply", "-", "--dry-run", "--format", "json", ...flags], { superuser: "require", input: text });
    if (!isNewest())
        return;
    if (ended.failure) {
        fill(place, problem("This cannot be applied as it is", ended.failure));
        return;
    }
    const { changes } = ended.document("nearmetal.changes/1");
    if (!changes.length) {
        fill(place, h("p", null, "There is nothing to change. ", h("a", { href: "#/in-force" }, "Compare what runs with the plan")));
        return;
    }
    const course = h("div", null);
    const begin = button(`Apply ${plural(changes.length, "change")}`, () => {
        begin.disabled = true;
        document.querySelectorAll("input[name=how]").forEach(radio => radio.disabled = true);
        applying(text, flags, course);
    }, "primary");
    fill(place, h("ol", { class: "changes" }, changes.map(change =>
        h("li", null, words(change.what), change.diff.length ? difference(change) : null))), begin, course);
}

// <ins> and <del> say what colour shows.
function difference(change) {
    const line = ({ kind, text }) => {
        if (kind === "added")
            return h("ins", null, `+${text}\n`);
        if (kind === "removed")
            return h("del", null, `-${text}\n`);
        return h("span", { class: kind === "place" ? "muted" : null }, kind === "place" ? `${text}\n` : ` ${text}\n`);
    };
    return h("details", { open: true }, h("summary", null, "Definition of ", name(change.domain)),
        h("pre", { class: "diff scroll", tabindex: "0", role: "region", "aria-label": "Difference of the definition" }, change.diff.map(line)));
}
