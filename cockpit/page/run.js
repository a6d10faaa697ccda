// Every start of the program: a list of words, never a line for a shell.

const cockpit = window.cockpit;

// How a run ended. `code` is null if the process did not end by itself; `problem` then says why, and `signal` what ended it.
class Ended {
    constructor(args, code, stdout, message, problem, signal = null) {
        Object.assign(this, { args, code, stdout, message, problem, signal });
    }

    // What went wrong, in words; empty for the exit codes 0 (done) and 1 (findings).
    get failure() {
        if (this.code === 0 || this.code === 1)
            return "";
        if (this.problem === "not-found")
            return "nearmetal is not installed on this host: install the package nearmetal";
        if (this.problem === "access-denied" || this.problem === "authentication-failed")
            return "this takes administrative access: turn it on at the top of the window";
        if (this.signal)
            return `nearmetal ${this.args[0]} was ended by signal ${this.signal}`;
        return this.message || `nearmetal ${this.args[0]} ended unexpectedly (${this.problem ?? `exit code ${this.code}`})`;
    }

    // The document it printed, if it has this schema.
    document(schema) {
        const found = JSON.parse(this.stdout);
        const first = Array.isArray(found) ? found[0] : found;
        if (first !== undefined && first?.schema !== schema)
            throw new Error(`expected ${schema}, found ${first?.schema ?? "no schema"}: page and program have different versions`);
        return found;
    }

    // The same of a run that may have printed it although not all went well; throws an Error with words for the reader if it did not.
    whatThereIs(schema) {
        try {
            return this.document(schema);
        } catch (error) {
            throw new Error(this.failure || error.message);
        }
    }
}

const SIGNALS = { 1: "HUP", 2: "INT", 6: "ABRT", 9: "KILL", 11: "SEGV", 15: "TERM" };

// What ended a program that did not end by itself. The bridge in C says it by name, that in Python (Debian 13) by a negative exit status;
// one that was never started has -1, and a problem.
function signalOf({ exit_signal: named, exit_status: status, problem }) {
    if (named)
        return named;
    return status < 0 && !problem ? SIGNALS[-status] ?? String(-status) : null;
}

// Starts nearmetal. `line` gets each line of stdout as it comes. `process` gets what can be closed.
export function run(args, { superuser = "try", input = null, line = null, process = null } = {}) {
    return new Promise(resolve => {
        let stdout = "";
        let rest = "";
        const child = cockpit.spawn(["nearmetal", ...args], { superuser, err: "message", environ: ["LC_ALL=C.UTF-8"] });
        process?.(child);
        child.stream(text => {
            stdout += text;
            if (line) {
                const lines = (rest + text).split("\n");
                rest = lines.pop();
                lines.filter(Boolean).forEach(line);
            }
        });
        child.done(() => resolve(new Ended(args, 0, stdout, "", null)));
        child.fail(error => {
            const signal = signalOf(error);
            const code = signal || error.problem ? null : error.exit_status;
            const ended = signal ? `signal ${signal}` : error.problem;
            resolve(new Ended(args, code ?? null, stdout, signal || !error.problem || error.problem === "internal-error"
                ? error.message : "", ended, signal));
        });
        if (input !== null)
            child.input(input);
    });
}

// Runs and reads one document; throws an Error with words for the reader.
export async function read(args, schema, options) {
    const ended = await run(args, options);
    if (ended.failure)
        throw new Error(ended.failure);
    return ended.document(schema);
}
