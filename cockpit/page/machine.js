// The machine as nearmetal draws it, and its guests as a table: what the picture shows, in words.

import { add, busy, bytes, h, mark, name, plural, problem, table } from "./dom.js";
import { read, run } from "./run.js";
import { isDark, onTheme } from "./theme.js";

let redraw = () => {};
onTheme(() => redraw());

export async function machine(body) {
    const waiting = busy("Reading the machine…");
    add(body, waiting);
    const [facts, drawn] = await Promise.all([
        read(["inspect", "--format", "json"], "nearmetal.host/1"),
        run(["inspect", "--format", "svg"]),
    ]);
    const begun = performance.now();
    waiting.remove();
    const guests = gather(facts);
    add(body, summary(facts));
    if (drawn.failure)
        add(body, problem("The machine could not be drawn", drawn.failure));
    else
        add(body, picture(drawn.stdout, facts, guests));
    add(body, guestTable(guests, facts));
    await Promise.all(Array.from(body.querySelectorAll("img"), image => image.decode().catch(() => {})));
    // Two frames: the second begins once the first is on the screen.
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    performance.measure("nearmetal:drawn", { start: begun, end: performance.now(), detail: { guests: guests.length } });
}

function summary(facts) {
    const { summary: counts, host, kvm } = facts;
    const parts = [
        ["Processor", host.system.processor_model ?? "?"],
        ["Shape", [plural(counts.packages ?? "?", "package"), plural(counts.numa_nodes, "node"), plural(counts.cores, "core"),
            plural(counts.pus, "PU")].join(", ")],
        ["Memory", bytes(counts.memory)],
        ["Linux", host.system.kernel ?? "?"],
        ["KVM", kvm ? `${kvm.verdict} (${kvm.reason})` : "?"],
    ];
    return h("dl", { class: "facts" }, parts.map(([term, text]) => h("div", null, h("dt", null, term), h("dd", null, text))));
}

// An image document runs no script and loads nothing, whatever names are in it.
function picture(text, facts, guests) {
    const words = `Nodes, cores, memory and devices of ${facts.host.system.hostname ?? "this machine"}, with ${plural(guests.length, "guest")}. ` +
        "The table below has the same in words.";
    const image = h("img", { alt: words });
    redraw = () => {
        const dark = isDark();
        const themed = text.replaceAll("@media screen and (prefers-color-scheme:dark)", dark ? "@media all" : "@media not all");
        image.src = `data:image/svg+xml,${encodeURIComponent(themed)}`;
    };
    redraw();
    return h("div", { class: "picture scroll", tabindex: "0", role: "region", "aria-label": "Picture of the machine" }, image);
}

// Guests by name: libvirt's domains, and QEMU processes that libvirt does not know.
function gather(facts) {
    const guests = new Map();
    const of = (key, title) => {
        if (!guests.has(key))
            guests.set(key, { title, state: "?", vcpus: null, pus: [], floats: false, memory: null, nodes: new Map(), domain: false });
        return guests.get(key);
    };
    for (const domain of facts.domains ?? [])
        Object.assign(of(domain.name, domain.name), { state: domain.state, domain: true });
    const owners = new Map();
    for (const process of facts.host.guests) {
        const title = process.name ?? `process ${process.pid}`;
        const guest = of(title, title);
        owners.set(process.pid, guest);
        guest.memory = process.memory;
        guest.vcpus = process.threads.filter(thread => isVcpu(thread.role)).length;
        if (!guest.domain)
            guest.state = "running";
    }
    for (const claim of facts.ledger.claims)
        if (isVcpu(claim.role))
            owners.get(claim.owner.pid)?.pus.push(claim.cpus);
    for (const [owner] of facts.ledger.floating) {
        const guest = owners.get(owner.pid);
        if (guest)
            guest.floats = true;
    }
    for (const use of facts.ledger.memory)
        owners.get(use.owner.pid)?.nodes.set(use.node, use.memory);
    return Array.from(guests.values());
}

const isVcpu = role => typeof role === "object" && role !== null && Object.keys(role)[0].toLowerCase() === "vcpu" || role?.kind === "vcpu";

function guestTable(guests, facts) {
    const heading = h("h3", { id: "guests" }, "Guests");
    if (facts.domains === null && facts.domains_unknown)
        add(heading, " ", mark("unsure", "libvirt was not asked"));
    const why = facts.domains === null && facts.domains_unknown ? h("p", { class: "muted" }, facts.domains_unknown) : null;
    if (!guests.length)
        return h("div", null, heading, why, h("p", null, "No guest runs here."));
    const rows = guests.map(row);
    const shown = table("Guests", ["Guest", "State", "vCPUs", "PUs of the vCPUs", "Memory", "Pages are on", "What next"], rows, { class: "guests" });
    const count = h("p", { class: "muted", role: "status" }, plural(guests.length, "guest"));
    const lines = Array.from(shown.querySelectorAll("tbody tr"));
    const filter = h("input", {
        type: "search", id: "filter", autocomplete: "off",
        oninput: () => {
            const wanted = filter.value.toLowerCase();
            let left = 0;
            lines.forEach((line, at) => {
                line.hidden = !guests[at].title.toLowerCase().includes(wanted);
                left += line.hidden ? 0 : 1;
            });
            count.textContent = `${left} of ${plural(guests.length, "guest")}`;
        },
    });
    return h("div", null, heading, why,
        guests.length > 8 && h("p", null, h("label", { for: "filter" }, "Show only guests whose name contains "), filter), count, shown);
}

function row(guest) {
    const pus = guest.pus.length ? guest.pus.join(" ") : guest.floats ? mark("unsure", "float over all PUs") : "–";
    const nodes = Array.from(guest.nodes, ([node, amount]) => `node ${node}: ${bytes(amount)}`).join(", ") || "–";
    const link = guest.domain
        ? h("a", { href: `#/plan?domain=${encodeURIComponent(guest.title)}`, "aria-label": `Plan ${guest.title}` }, "Plan") : "";
    return [name(guest.title), guest.state, guest.vcpus ?? "–", pus, guest.memory === null ? "–" : bytes(guest.memory), nodes, link];
}
