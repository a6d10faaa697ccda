// The sections, one at a time, by the address: #/findings can be linked to and reloaded.

import { add, fill, h, problem } from "./dom.js";
import "./theme.js";
import { machine } from "./machine.js";
import { findings } from "./findings.js";
import { plan } from "./plan.js";
import { inForce } from "./in-force.js";
import { measurements } from "./measurements.js";

const cockpit = window.cockpit;
const SECTIONS = [
    ["machine", "Machine", machine],
    ["findings", "Findings", findings],
    ["plan", "Plan", plan],
    ["in-force", "In force", inForce],
    ["measurements", "Measurements", measurements],
];

const place = document.getElementById("section");
let shown = null;

async function show(focus) {
    const [word, ...rest] = cockpit.location.path;
    const section = SECTIONS.find(([path]) => path === word) ?? SECTIONS[0];
    fill(document.getElementById("sections"), h("ul", null, SECTIONS.map(([path, label]) =>
        h("li", null, h("a", { href: `#/${path}`, "aria-current": path === section[0] ? "page" : null }, label)))));
    document.title = `nearmetal: ${section[1]}`;
    const body = h("section", { "aria-labelledby": "head" }, h("h2", { id: "head", tabindex: "-1" }, section[1]));
    // Whoever still writes into the section that was left writes into nothing.
    fill(place, body);
    shown = body;
    if (focus)
        body.querySelector("h2").focus();
    try {
        await section[2](body, rest, cockpit.location.options);
    } catch (error) {
        add(body, problem("This could not be read", error.message));
    }
    if (shown === body)
        document.documentElement.dataset.ready = section[0];
}

function access(permission) {
    const text = "Limited access: nearmetal reads what this user may read, and changes nothing. " +
        "Turn on administrative access at the top of the window to plan, apply and roll back.";
    fill(document.getElementById("access"), permission.allowed === false ? h("p", { class: "box unsure" }, text) : "");
}

cockpit.addEventListener("locationchanged", () => {
    delete document.documentElement.dataset.ready;
    show(true);
});
const permission = cockpit.permission({ admin: true });
let limited = false;
permission.addEventListener("changed", () => {
    access(permission);
    // What this user was not shown is read now. No change is cut off: making one takes the access that was not there.
    if (limited && permission.allowed)
        show(false);
    limited = permission.allowed === false;
});
access(permission);
cockpit.transport.wait(() => show(false));
