//! Flavors as entries of a fleet file: what `openstack flavor show -f json` and `flavor list --long -f json` print.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use nearmetal_fleet::file::{FleetFile, amount, quoted};
use nearmetal_units::{Bytes, PageSize};
use serde_json::{Map, Value};

use crate::names::one_line;
use crate::{InterchangeError, Limit};

/// Nova's `initial_cpu_allocation_ratio`, where a flavor has no PUs of its own.
const SHARED: &str = "4.0";
/// Bytes of a file of flavors, at most.
const LARGEST: usize = 16 << 20;
/// Bytes of a name in a fleet file, at most.
const LONGEST_NAME: usize = 200;

const HEAD: &str = "\
# VMs of the shapes that these OpenStack flavors have: one of each. Change names and `count`, and name your hosts.
# `nearmetal fleet check FILE` says what is understood, `nearmetal fleet example` shows what else can be said.

[[host]]
name = \"here\"
local = true
";

/// A flavor as it was read.
struct Read {
    name: String,
    vcpus: u64,
    mebibytes: u64,
    properties: BTreeMap<String, String>,
    /// Sizes of disks that are not 0, by their field.
    disks: Vec<(&'static str, String)>,
}

/// Fields of a flavor that are sizes of disks: root and ephemeral in GiB, swap in MiB.
const DISKS: [&str; 3] = ["disk", "OS-FLV-EXT-DATA:ephemeral", "swap"];

/// A fleet file with a VM for each flavor, and what of them it cannot say. It parses.
///
/// # Errors
/// A text that is no JSON, or no flavor or list of flavors.
pub fn fleet_from_flavors(text: &str, origin: &str) -> Result<(String, Vec<Limit>), InterchangeError> {
    let unreadable = |problem: String| InterchangeError::Unreadable { origin: origin.to_owned(), problem };
    if text.len() > LARGEST {
        return Err(unreadable(format!("it has {} bytes; the limit is {LARGEST}", text.len())));
    }
    let value: Value = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    let list = match value {
        Value::Array(list) => list,
        one @ Value::Object(_) => vec![one],
        _ => return Err(unreadable("it is neither a flavor nor a list of flavors".to_owned())),
    };
    let (mut fleet, mut limits, mut names) = (HEAD.to_owned(), Vec::new(), BTreeSet::new());
    for (number, value) in list.iter().enumerate() {
        let flavor = flavor(value).map_err(|problem| unreadable(format!("flavor {}: {problem}", number + 1)))?;
        let (block, own) = block(&flavor, &mut names);
        limits.extend(own);
        // What a fleet file refuses stands in it as a comment, with the reason.
        match FleetFile::parse("", &format!("{HEAD}\n{block}")) {
            Ok(_) => _ = write!(fleet, "\n{block}"),
            Err(errors) => {
                let problem = errors.problems.first().map_or_else(String::new, |one| one.message.clone());
                limits.push(limit(&flavor, "flavor", "", &problem, "write the VM by hand"));
                let said: String = block.lines().map(|line| format!("# {line}\n")).collect();
                let _ = write!(fleet, "\n# Left out: {}\n{said}", one_line(&problem));
            }
        }
    }
    Ok((fleet, limits))
}

fn limit(flavor: &Read, what: &str, planned: &str, why: &str, by_hand: &str) -> Limit {
    Limit {
        host: None,
        vm: Some(flavor.name.clone()),
        what: what.to_owned(),
        planned: planned.to_owned(),
        why: why.to_owned(),
        by_hand: by_hand.to_owned(),
    }
}

/// Keys are `vcpus` in one form and `VCPUs` in the other.
fn key<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn flavor(value: &Value) -> Result<Read, String> {
    let object = value.as_object().ok_or("it is not an object")?;
    let number = |name: &str| match key(object, name) {
        Some(Value::Number(number)) => number.as_u64().ok_or_else(|| format!("`{name}` is {number}: no whole number")),
        Some(Value::String(text)) => text.parse().map_err(|_| format!("`{name}` is `{text}`: no whole number")),
        _ => Err(format!("it has no `{name}`")),
    };
    let name = key(object, "name").and_then(Value::as_str).ok_or("it has no `name`")?;
    let properties = match key(object, "properties").or_else(|| key(object, "extra_specs")) {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::Object(map)) => map.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        Some(Value::String(text)) => pairs(text)?,
        Some(_) => return Err("its `properties` are neither an object nor a text".to_owned()),
    };
    let size = |name: &'static str| Some((name, plain(key(object, name)?)));
    let is_there = |(_, value): &(&str, String)| !matches!(value.as_str(), "" | "0" | "null");
    let disks = DISKS.into_iter().filter_map(size).filter(is_there).collect();
    Ok(Read { name: name.to_owned(), vcpus: number("vcpus")?, mebibytes: number("ram")?, properties, disks })
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `key='value', key='value'`, as older clients print properties.
fn pairs(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut pairs = BTreeMap::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let wrong = || format!("its `properties` cannot be read at `{}`", rest.chars().take(40).collect::<String>());
        let (key, after) = rest.split_once("='").ok_or_else(wrong)?;
        let (value, after) = after.split_once('\'').ok_or_else(wrong)?;
        pairs.insert(key.trim().to_owned(), value.to_owned());
        rest = after.trim_start_matches([',', ' ']);
    }
    Ok(pairs)
}

/// A name a fleet file takes, that no flavor before has.
fn free_name(name: &str, names: &mut BTreeSet<String>) -> String {
    let clean: String = name.chars().map(|c| if c.is_control() || c == '/' { '-' } else { c }).collect();
    let mut clean = clean.trim().to_owned();
    while clean.len() > LONGEST_NAME - 8 {
        clean.pop();
    }
    if clean.is_empty() || clean == "." || clean == ".." {
        "vm".clone_into(&mut clean);
    }
    let mut free = clean.clone();
    let mut number = 2;
    while !names.insert(free.clone()) {
        free = format!("{clean}-{number}");
        number += 1;
    }
    free
}

fn block(flavor: &Read, names: &mut BTreeSet<String>) -> (String, Vec<Limit>) {
    let name = free_name(&flavor.name, names);
    let mut limits = Vec::new();
    if name != flavor.name {
        limits.push(limit(flavor, "name", &name, "a fleet file takes it in this form", "nothing to do"));
    }
    let mut text = String::new();
    let mut line = |key: &str, value: &str| _ = writeln!(text, "{key} = {value}");
    line("[[vm]]\nname", &quoted(&name));
    line("vcpus", &flavor.vcpus.to_string());
    line("memory", &format!("\"{} MiB\"", flavor.mebibytes));
    let spec = |name: &str| flavor.properties.get(name).map(|value| value.trim());
    let mut said: BTreeSet<&str> = BTreeSet::new();
    let mut left = |what: &str, why: &str, by_hand: &str| {
        limits.push(limit(flavor, what, spec(what).unwrap_or_default(), why, by_hand));
    };
    match spec("hw:mem_page_size").map(page_size) {
        None => {}
        Some(Page::Kernel) => line("page-size", "\"kernel\""),
        Some(Page::Size(size)) => line("page-size", &format!("\"{}\"", amount(size.bytes()))),
        Some(Page::Guess(value)) => {
            line("page-size", value);
            let why = "a fleet file names one size";
            left("hw:mem_page_size", why, &format!("it is {value} here: change it if the hosts have other pages"));
        }
        Some(Page::Unknown) => left("hw:mem_page_size", "it is no page size of x86", "write `page-size` by hand"),
    }
    match spec("hw:cpu_policy") {
        Some("dedicated") => line("cpus", "\"dedicated\""),
        Some("mixed") => {
            line("cpus", "\"dedicated\"");
            left("hw:cpu_policy", "all vCPUs of a VM are alike in a fleet file", "they are all dedicated here");
        }
        _ => line("cpus", &format!("{{ shared = {SHARED} }}  # Nova's default ratio: write that of your hosts")),
    }
    match spec("hw:cpu_thread_policy") {
        Some(policy @ ("prefer" | "isolate" | "require")) => line("smt", &quoted(policy)),
        Some(_) => left("hw:cpu_thread_policy", "it is none of Nova's words", "write `smt` by hand"),
        None => {}
    }
    match spec("hw:numa_nodes").map(str::parse::<u32>) {
        Some(Ok(1)) | None => {}
        Some(Ok(cells)) => line("numa", &cells.to_string()),
        Some(Err(_)) => left("hw:numa_nodes", "it is no number", "write `numa` by hand"),
    }
    if spec("hw:cpu_realtime").is_some_and(|value| ["yes", "true", "1", "on"].contains(&value.to_lowercase().as_str()))
    {
        line("class", "\"latency\"");
    }
    said.extend(["hw:mem_page_size", "hw:cpu_policy", "hw:cpu_thread_policy", "hw:numa_nodes", "hw:cpu_realtime"]);
    for (key, value) in &flavor.disks {
        let why = "a fleet file takes disks by their path";
        limits.push(limit(flavor, key, value, why, "write `disks` by hand"));
        let _ = writeln!(text, "# {key} = {}: {why}", one_line(value));
    }
    for (key, value) in flavor.properties.iter().filter(|(key, _)| !said.contains(key.as_str())) {
        let (why, by_hand) = unsaid(key);
        limits.push(limit(flavor, key, value, why, by_hand));
        let (key, value) = (one_line(key), one_line(value));
        let _ = writeln!(text, "# {key} = {value}: {why}");
    }
    (text, limits)
}

/// Why a fleet file does not say an extra spec.
fn unsaid(key: &str) -> (&'static str, &'static str) {
    match key {
        _ if key.starts_with("hw:numa_cpus.") || key.starts_with("hw:numa_mem.") => {
            ("a fleet file divides vCPUs and memory evenly over its cells", "nothing to do if the flavor does too")
        }
        "hw:cpu_sockets" | "hw:cpu_cores" | "hw:cpu_threads" | "hw:cpu_max_sockets" | "hw:cpu_max_cores"
        | "hw:cpu_max_threads" => ("the plan makes the topology from the PUs it chose", "nothing to do"),
        "hw:emulator_threads_policy" => {
            ("every plan gives the emulator thread a PU outside the vCPUs if it can", "nothing to do")
        }
        "pci_passthrough:alias" => {
            ("an alias is in nova.conf, not in the flavor", "write [[vm.device]] with the id that the alias stands for")
        }
        _ => ("a fleet file has no key for it", "see whether the plan needs it"),
    }
}

enum Page {
    Kernel,
    Size(PageSize),
    /// A value in TOML.
    Guess(&'static str),
    Unknown,
}

/// A page size in Nova's words: `small`, `large`, `any`, KiB, or a number with a unit, all binary (oslo's
/// `string_to_bytes`).
fn page_size(text: &str) -> Page {
    match text {
        "small" => return Page::Kernel,
        "large" => return Page::Guess("\"2 MiB\""),
        "any" => return Page::Guess("\"kernel\""),
        _ => {}
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Page::Unknown,
    };
    let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift)).map(Bytes::new);
    match bytes.and_then(|bytes| PageSize::try_from(bytes).ok()) {
        Some(PageSize::SMALL) => Page::Kernel,
        Some(size) => Page::Size(size),
        None => Page::Unknown,
    }
}
