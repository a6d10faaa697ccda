// What was measured, over time: a chart for each pair of arms and workload, and the table behind it.

import { add, busy, h, mark, moment, name, plural, svg, table, words } from "./dom.js";
import { read } from "./run.js";

const WIDTH = 640;
const HEIGHT = 150;
const EDGE = { left: 52, right: 14, top: 12, bottom: 24 };

export async function measurements(body) {
    const waiting = busy("Reading the store…");
    add(body, waiting);
    const { measurements: all } = await read(["bench", "history", "--format", "json"], "nearmetal.history/1");
    waiting.remove();
    if (!all.length) {
        add(body, h("p", null, "Nothing was measured here yet. ", h("code", null, "nearmetal bench slice DOMAIN --scratch DEVICE --quick --pause"),
            " compares a guest with the same slice of bare metal; it takes minutes and pauses the guest, so start it in a terminal."));
        return;
    }
    add(body, h("p", { class: "muted" }, "Each ratio is the rate of a workload under one arm over that under another, with its 95 % interval. ",
        "1.00× is no difference. Hollow points are single shots: nothing is claimed of them."));
    for (const [title, points] of series(all))
        add(body, chart(title, points));
    add(body, h("h3", null, plural(all.length, "measurement")), table("All measurements", ["Number", "When", "What", "Guests", "Result", "Runs", "Kernel, QEMU"],
        all.map(one => [String(one.id), moment(one.created), one.experiment, one.guests.map((guest, at) => [at ? ", " : "", name(guest)]),
            result(one), String(one.runs), `${one.kernel}, ${one.qemu}`])));
}

function result(one) {
    const lab = one.environment.kind === "lab" ? " (lab: emulated time)" : "";
    if (one.state === "failed")
        return h("span", null, mark("bad", "failed"), ": ", words(one.problem ?? ""), lab);
    if (one.state === "running")
        return h("span", null, mark("unsure", "running, or killed"), lab);
    return h("span", null, mark("good", one.winner ? `${one.winner} won` : "done"), lab);
}

// Ratios of the same guests, workload and arms, the oldest first.
function series(all) {
    const found = new Map();
    for (const one of [...all].reverse())
        for (const ratio of one.ratios ?? []) {
            const lab = one.environment.kind === "lab" ? `lab ${one.environment.machine}: emulated time` : "";
            const title = [one.guests.join(", "), ratio.workload, `${ratio.subject} / ${ratio.reference}`, lab].filter(Boolean).join(" · ");
            found.set(title, [...found.get(title) ?? [], { id: one.id, created: one.created, ...ratio }]);
        }
    return found;
}

const times = value => `${value.toFixed(2)}×`;
const said = point => `${times(point.ratio)}${point.low === null ? ", single shot" : ` (${point.low.toFixed(2)}–${point.high.toFixed(2)})`}`;

function chart(title, points) {
    const low = Math.min(1, ...points.map(point => point.low ?? point.ratio));
    const high = Math.max(1, ...points.map(point => point.high ?? point.ratio));
    const pad = (high - low || 0.1) * 0.12;
    const y = value => HEIGHT - EDGE.bottom - (value - low + pad) / (high - low + 2 * pad) * (HEIGHT - EDGE.top - EDGE.bottom);
    const x = at => EDGE.left + (at + 0.5) / points.length * (WIDTH - EDGE.left - EDGE.right);
    const text = (px, py, words, anchor) => svg("text", { x: px, y: py, "text-anchor": anchor }, words);
    const ticks = [low, 1, high].filter((value, at, list) => at === list.findIndex(other => Math.abs(y(other) - y(value)) < 14));
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "chart", "aria-label":
        `${title}: ${points.map(point => `measurement ${point.id} ${said(point)}`).join("; ")}` },
    svg("line", { class: "one", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(1), y2: y(1) }),
    ticks.map(value => text(EDGE.left - 6, y(value) + 4, times(value), "end")),
    points.map((point, at) => svg("g", null,
        point.low === null ? [] : svg("line", { class: "interval", x1: x(at), x2: x(at), y1: y(point.low), y2: y(point.high) }),
        svg("circle", { class: point.low === null ? "single" : "paired", cx: x(at), cy: y(point.ratio), r: 5 }),
        points.length <= 12 ? text(x(at), HEIGHT - 6, `#${point.id}`, "middle") : [])));
    const last = points.at(-1);
    return h("figure", { class: "card" }, h("figcaption", null, title, h("span", { class: "muted" }, ` · latest ${said(last)}${last.verdict ? `: ${last.verdict}` : ""}`)), drawing);
}
