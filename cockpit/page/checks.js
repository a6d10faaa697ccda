// A read-back: differences first, what nobody could tell next, and the rest on request.

import { h, mark, plural, table, words } from "./dom.js";

const KINDS = { "ok": "good", "mismatch": "bad", "cannot-tell": "unsure" };
const WORDS = { "ok": "as planned", "mismatch": "differs", "cannot-tell": "cannot tell" };

const row = check => [words(check.subject), mark(KINDS[check.outcome] ?? "unsure", WORDS[check.outcome] ?? check.outcome), words(check.planned),
    words(check.found ?? "?"), words([check.why, check.place].filter(Boolean).join("; "))];

const rows = (caption, list) => table(caption, ["What", "Outcome", "Planned", "Found", "Where it was read"], list.map(row));

// How many checks of several `nearmetal.verification/1` had this outcome.
export const tally = (verifications, outcome) => verifications.flatMap(one => one.checks).filter(check => check.outcome === outcome).length;

// The checks of a `nearmetal.verification/1`.
export function checks(verification) {
    const by = outcome => verification.checks.filter(check => check.outcome === outcome);
    const [good, bad] = [by("ok"), by("mismatch")];
    const unsure = verification.checks.filter(check => !["ok", "mismatch"].includes(check.outcome));
    return h("div", null,
        h("p", null, [mark(bad.length ? "bad" : unsure.length ? "info" : "good", `${bad.length} ${bad.length === 1 ? "differs" : "differ"}`), " ", unsure.length ? mark("unsure", `${unsure.length} cannot be told`) : "", " ",
            mark("good", `${good.length} as planned`)]),
        bad.length ? rows("Checks that differ", bad) : null,
        unsure.length ? h("details", null, h("summary", null, `${plural(unsure.length, "check")} that nobody could tell`), rows("Checks that nobody could tell", unsure)) : null,
        good.length ? h("details", null, h("summary", null, `${plural(good.length, "check")} as planned`), rows("Checks as planned", good)) : null);
}
