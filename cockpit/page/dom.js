// Elements, made of text alone: nothing from outside is ever read as markup.

// h("p", { class: "muted" }, "text", element, [more]); `on…` is a listener, `true` an attribute without value.
export function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (value === null || value === undefined || value === false)
            continue;
        if (name.startsWith("on"))
            element.addEventListener(name.slice(2), value);
        else
            element.setAttribute(name, value === true ? "" : value);
    }
    add(element, children);
    return element;
}

export function svg(tag, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes ?? {}))
        element.setAttribute(name, value);
    element.append(...children.flat(Infinity));
    return element;
}

const flat = children => children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false);

// The browser's own append would write lists and nothings as words.
export const add = (place, ...children) => place.append(...flat(children));
export const fill = (place, ...children) => place.replaceChildren(...flat(children));

// A name from outside. <bdi> keeps its direction of writing to itself.
export const name = text => h("bdi", { class: "name" }, text);

// A sentence of nearmetal: what stands in backticks is a command, a path or a name.
export function words(text) {
    return text.split("`").map((part, at) => at % 2 ? h("code", null, h("bdi", null, part)) : part);
}

export const button = (label, onclick, kind = "secondary", more = {}) =>
    h("button", { type: "button", class: kind, onclick, ...more }, label);

// A table; `rows` are lists of cells, the first of each is the row's header.
export function table(caption, heads, rows, more = {}) {
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
        h("table", more,
            h("caption", { class: "hidden" }, caption),
            h("thead", null, h("tr", null, heads.map(head => h("th", { scope: "col" }, head)))),
            h("tbody", null, rows.map(cells => h("tr", null, cells.map((cell, at) =>
                at === 0 ? h("th", { scope: "row" }, cell) : h("td", null, cell)))))));
}

// Symbol and word: colour never carries meaning alone.
export const mark = (kind, word) =>
    h("span", { class: `mark ${kind}` }, { good: "✓ ", bad: "✗ ", unsure: "? ", info: "• " }[kind] ?? "", word);

export function problem(title, text) {
    return h("div", { class: "box bad", role: "alert" }, h("h3", null, title), text && h("p", { class: "words" }, words(text)));
}

export const busy = text => h("p", { class: "busy", role: "status" }, text);

export function bytes(value) {
    if (value === null || value === undefined)
        return "?";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let at = 0;
    while (at + 1 < units.length && value >= 1024 ** (at + 1))
        at++;
    let whole = at;
    while (whole > 0 && value % 1024 ** whole !== 0)
        whole--;
    const exact = value / 1024 ** whole;
    return exact < 10000 ? `${exact} ${units[whole]}` : `${(value / 1024 ** at).toFixed(1)} ${units[at]}`;
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

// 2026-11-24T22:51:43Z in the reader's own time, and exactly in the title.
export function moment(text) {
    const date = new Date(text);
    return h("time", { datetime: text, title: text }, isNaN(date) ? text : date.toLocaleString());
}

// Asked again before the first answer came, a place shows the newest alone: `const isNewest = newest(place)`, then the answer.
const turns = new WeakMap();
export function newest(place) {
    const mine = {};
    turns.set(place, mine);
    return () => turns.get(place) === mine;
}
