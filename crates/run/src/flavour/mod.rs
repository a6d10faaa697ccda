//! The flavours file: guests to choose from, TOML in, plain data out; no I/O.

mod keys;

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_domain::{DiskBus, Firmware};
use nearmetal_fleet::file::{At, FileErrors, Notes, Section, nearest, read_text};
use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize};

pub use keys::{TABLES, keys};

/// Where flavours are unless the user says otherwise.
pub const FILE: &str = "/etc/nearmetal/flavours.toml";
/// A commented flavours file that says a little of everything; it parses.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Bytes of a flavours file at most.
const MOST_TEXT: usize = 1 << 20;
/// vCPUs of a guest at most: QEMU's limit for q35 (pc_q35_machine_options) since 8.2.
const MOST_VCPUS: i64 = 4096;
/// A kernel does not boot in less.
const LEAST_MEMORY: Bytes = Bytes::from_mib(64);
/// Characters of a name: it is a part of a domain's.
const MOST_NAME: usize = 40;

/// Guests to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flavours {
    flavours: Vec<Flavour>,
}

/// A guest, as every run of this flavour has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flavour {
    /// Its name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Size of its hugepages; `None` for the kernel's own pages.
    pub page_size: Option<PageSize>,
    /// What it is for; never `density`, whose guests own no PU.
    pub class: WorkloadClass,
    /// Whether it shares no core.
    pub whole_cores: bool,
    /// Its base image, as somebody means it.
    pub image: Option<String>,
    /// How it drives its disk.
    pub bus: DiskBus,
    /// What it boots.
    pub boot: Boot,
    /// Its network.
    pub network: Network,
    /// How long the command may take.
    pub time_limit: Option<Duration>,
    /// How long the guest may take to shut down.
    pub grace: Duration,
    /// How long it may take until its agent answers.
    pub boot_limit: Duration,
    /// Group whose members may have it from the service that runs guests as root; `None`: nobody but root.
    pub open_to: Option<String>,
}

/// What a guest boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// Its disk.
    Disk(Firmware),
    /// A kernel of the host.
    Kernel {
        /// It.
        kernel: PathBuf,
        /// Its initial RAM disk.
        initrd: Option<PathBuf>,
        /// Its command line.
        command_line: String,
    },
    /// The measuring appliance.
    Appliance,
}

/// What a guest's interface hangs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// It has none.
    None,
    /// QEMU's own network.
    User,
    /// A bridge of the host.
    Bridge(String),
    /// A virtual function for itself, of the port with this name on the host.
    Function(String),
}

/// A flavour that is not in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no flavour is called `{wanted}`{}; there are: {known}", near.as_ref().map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
pub struct UnknownFlavour {
    wanted: String,
    near: Option<String>,
    known: String,
}

impl Flavours {
    /// Reads a flavours file. `origin`: its name, for messages.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line and column.
    pub fn parse(origin: &str, text: &str) -> Result<Self, FileErrors> {
        read_text(origin, text, (MOST_TEXT, "take flavours away that nobody uses"), &TABLES, read)
    }

    /// All of them, in the file's order.
    pub fn all(&self) -> &[Flavour] {
        &self.flavours
    }

    /// The one of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, wanted: &str) -> Result<&Flavour, UnknownFlavour> {
        let known = || self.flavours.iter().map(|flavour| flavour.name.as_str());
        self.flavours.iter().find(|flavour| flavour.name == wanted).ok_or_else(|| UnknownFlavour {
            wanted: wanted.chars().take(MOST_NAME).map(|c| if c.is_control() { '?' } else { c }).collect(),
            near: nearest(wanted, known()).map(str::to_owned),
            known: known().collect::<Vec<_>>().join(", "),
        })
    }
}

fn read(top: &Section<'_>, notes: &Notes) -> Flavours {
    let sections = top.tables("flavour", keys::OF_FLAVOUR);
    if sections.is_empty() && !top.has("flavour") {
        notes.add(&(0..0), "the file has no [[flavour]]", "add one, with `name`, `vcpus` and `memory`");
    }
    let mut flavours: Vec<Flavour> = Vec::new();
    for section in sections {
        let Some(flavour) = flavour(&section) else { continue };
        if flavours.iter().any(|other| other.name == flavour.name) {
            section.wrong(
                &section.place("name"),
                format!("two flavours are called \"{}\"", flavour.name),
                "rename one",
            );
        }
        flavours.push(flavour);
    }
    top.finish();
    Flavours { flavours }
}

/// `None` if something it cannot do without is missing or wrong, which is noted then.
fn flavour(section: &Section<'_>) -> Option<Flavour> {
    let name = required(section, "name", section.line("name")).filter(|name| is_name(section, name));
    let section = section.owned_by(name.as_ref().map_or_else(String::new, |name| format!("flavour `{}`", name.value)));
    let vcpus = required(&section, "vcpus", section.integer("vcpus", 1..=MOST_VCPUS, "vCPUs"));
    let memory = required(&section, "memory", section.bytes("memory"));
    let classes = [WorkloadClass::General, WorkloadClass::Throughput, WorkloadClass::Latency];
    let class = section.word("class", &classes.map(|class| (class.word(), class)));
    let page_size = section.page_size("page-size").and_then(|size| size.value);
    if let Some(memory) = &memory {
        let unit = page_size.unwrap_or(PageSize::SMALL).bytes();
        if memory.value < LEAST_MEMORY {
            let message = format!("`memory` is {}", memory.value);
            section.wrong(&memory.span, message, format!("give {LEAST_MEMORY} at least"));
        } else if memory.value.get() % unit.get() != 0 {
            let message = format!("`memory` is {}, which is not a multiple of its pages of {unit}", memory.value);
            section.wrong(&memory.span, message, "give a multiple, or another `page-size`");
        }
    }
    let (boot, network) = (boot(&section), network(&section));
    let image = section.line("image");
    if let (Some(Boot::Appliance), Some(image)) = (&boot, &image) {
        let help = "take `image` away, or boot its disk";
        section.wrong(&image.span, "`image` does not go with `boot = \"appliance\"`", help);
    }
    let time = |key: &'static str| {
        let text = section.line(key)?;
        match nearmetal_units::seconds(&text.value) {
            Ok(0) => section.wrong(&text.span, format!("`{key}` is no time at all"), "give one second at least"),
            Ok(seconds) => return Some(Duration::from_secs(seconds.into())),
            Err(error) => {
                section.wrong(&text.span, format!("`{key}`: {error}"), "for example: \"30s\", \"10m\", \"2h\"")
            }
        }
        None
    };
    let (time_limit, grace, boot_limit) = (time("time-limit"), time("grace"), time("boot-limit"));
    let buses = [("virtio", DiskBus::Virtio), ("scsi", DiskBus::Scsi)];
    let bus = section.word("bus", &buses).map(|bus| bus.value);
    let whole_cores = section.boolean("whole-cores").is_some_and(|flag| flag.value);
    let open_to = section.line("open-to");
    section.finish();
    Some(Flavour {
        name: name?.value,
        vcpus: u32::try_from(vcpus?.value).ok()?,
        memory: memory?.value,
        page_size,
        class: class.map(|class| class.value).unwrap_or_default(),
        whole_cores,
        image: image.map(|image| image.value),
        bus: bus.unwrap_or_default(),
        boot: boot?,
        network: network?,
        time_limit,
        grace: grace.unwrap_or(Duration::from_secs(10)),
        boot_limit: boot_limit.unwrap_or(Duration::from_secs(300)),
        open_to: open_to.map(|group| group.value),
    })
}

fn required<T>(section: &Section<'_>, key: &str, found: Option<At<T>>) -> Option<At<T>> {
    if !section.has(key) {
        let help = format!("add it, for example: {}", section.example(key));
        section.wrong(&section.span, format!("{} has no `{key}`", section.head()), help);
    }
    found
}

fn is_name(section: &Section<'_>, name: &At<String>) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_one = name.value.len() <= MOST_NAME
        && name.value.bytes().all(plain)
        && name.value.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if !is_one {
        let help = format!("begin with a letter or digit, then letters, digits, `-`, `_` and `.`, {MOST_NAME} at most");
        section.wrong(&name.span, "`name` cannot be a part of a domain's name", help);
    }
    is_one
}

fn boot(section: &Section<'_>) -> Option<Boot> {
    #[derive(Clone, Copy, PartialEq)]
    enum Word {
        Disk,
        Kernel,
        Appliance,
    }
    let words = [("disk", Word::Disk), ("kernel", Word::Kernel), ("appliance", Word::Appliance)];
    let word = section.word("boot", &words).map(|word| word.value);
    if word.is_none() && section.has("boot") {
        return None;
    }
    let word = word.unwrap_or(Word::Disk);
    let firmware = section.word("firmware", &[("bios", Firmware::Bios), ("efi", Firmware::Efi)]);
    let (kernel, initrd) = (path(section, "kernel"), path(section, "initrd"));
    let command_line = section.line("command-line");
    if word != Word::Kernel {
        for key in ["kernel", "initrd", "command-line"].into_iter().filter(|key| section.has(key)) {
            let help = "write boot = \"kernel\", or take it away";
            section.wrong(&section.place(key), format!("`{key}` goes with `boot = \"kernel\"` alone"), help);
        }
    }
    if word != Word::Disk && section.has("firmware") {
        section.wrong(&section.place("firmware"), "`firmware` goes with `boot = \"disk\"` alone", "take it away");
    }
    match word {
        Word::Disk => Some(Boot::Disk(firmware.map(|firmware| firmware.value).unwrap_or_default())),
        Word::Appliance => Some(Boot::Appliance),
        Word::Kernel => Some(Boot::Kernel {
            kernel: required(section, "kernel", kernel)?.value,
            initrd: initrd.map(|initrd| initrd.value),
            command_line: command_line.map_or_else(|| "console=ttyS0".to_owned(), |line| line.value),
        }),
    }
}

fn path(section: &Section<'_>, key: &'static str) -> Option<At<PathBuf>> {
    let found = section.line(key)?;
    if !found.value.starts_with('/') {
        section.wrong(&found.span, format!("`{key}` is a relative path"), "begin it with `/`");
        return None;
    }
    Some(At { value: found.value.into(), span: found.span })
}

fn network(section: &Section<'_>) -> Option<Network> {
    let word = section.word("network", &[("none", false), ("user", true)]);
    let word = word.map(|user| if user.value { Network::User } else { Network::None });
    let (bridge, function) = (section.line("bridge"), section.line("function"));
    let keys: Vec<&str> = ["network", "bridge", "function"].into_iter().filter(|key| section.has(key)).collect();
    match keys.as_slice() {
        [] => return Some(Network::None),
        [_] => {}
        [first, .., last] => {
            let (wrong, help) = (format!("`{last}` does not go with `{first}`"), "take one of them away");
            section.wrong(&section.place(last), wrong, help);
            return None;
        }
    }
    let bridge = bridge.map(|bridge| Network::Bridge(bridge.value));
    word.or(bridge).or(function.map(|port| Network::Function(port.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        Flavours::parse("flavours.toml", text).unwrap_err().to_string()
    }

    const SMALL: &str = "[[flavour]]\nname = \"small\"\nvcpus = 2\nmemory = \"1 GiB\"\n";

    #[test]
    fn the_file_that_an_error_proposes_is_one() {
        let said = crate::RunError::NoFlavoursFile { path: "/etc/f.toml".into() }.to_string();
        let file: Vec<&str> = said.lines().filter(|line| line.starts_with("    ")).collect();
        let flavours = Flavours::parse("proposed", &file.join("\n")).unwrap();
        assert_eq!(flavours.find("tiny").unwrap().vcpus, 1);
    }

    #[test]
    fn the_example_uses_every_key() {
        let flavours = Flavours::parse("example.toml", EXAMPLE).unwrap();
        assert!(flavours.all().len() >= 3);
        for (table, key) in keys() {
            let used = EXAMPLE.contains(&format!("{} =", key.name)) || EXAMPLE.contains(&format!("[[{}]]", key.name));
            assert!(used, "{} {}", table.head, key.name);
        }
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let flavours = Flavours::parse("f", SMALL).unwrap();
        let small = flavours.find("small").unwrap();
        assert_eq!((small.vcpus, small.memory, small.page_size), (2, Bytes::from_mib(1024), None));
        assert_eq!((&small.boot, &small.network), (&Boot::Disk(Firmware::Bios), &Network::None));
        assert_eq!((small.time_limit, small.grace), (None, Duration::from_secs(10)));
    }

    #[test]
    fn a_flavour_that_is_not_there_is_answered_with_the_nearest() {
        let flavours = Flavours::parse("f", SMALL).unwrap();
        let error = flavours.find("smal").unwrap_err().to_string();
        assert_eq!(error, "no flavour is called `smal`, did you mean `small`?; there are: small");
        assert!(flavours.find("a\nb").unwrap_err().to_string().contains("a?b"));
    }

    #[test]
    fn every_mistake_is_told_with_its_line_and_what_to_do() {
        for (text, expected) in [
            ("", "no [[flavour]]"),
            ("[[flavour]]\nname = \"a\"\n", "no `vcpus`"),
            (&format!("{SMALL}vcpu = 2\n"), "did you mean `vcpus`?"),
            (&SMALL.replace("1 GiB", "1 GB"), "GiB"),
            (&SMALL.replace("\"small\"", "\"../x\""), "part of a domain's name"),
            (&format!("{SMALL}{SMALL}"), "two flavours"),
            (&format!("{SMALL}page-size = \"1 GiB\"\n").replace("\"1 GiB\"\np", "\"1500 MiB\"\np"), "multiple"),
            (&format!("{SMALL}boot = \"kernel\"\n"), "no `kernel`"),
            (&format!("{SMALL}kernel = \"/k\"\n"), "boot = \"kernel\""),
            (&format!("{SMALL}boot = \"kernel\"\nkernel = \"k\"\n"), "relative path"),
            (&format!("{SMALL}boot = \"appliance\"\nimage = \"x\"\n"), "does not go with"),
            (&format!("{SMALL}network = \"user\"\nbridge = \"br0\"\n"), "does not go with"),
            (&format!("{SMALL}bridge = \"br0\"\nfunction = \"eth0\"\n"), "`function` does not go with `bridge`"),
            (&format!("{SMALL}network = \"none\"\nfunction = \"eth0\"\n"), "`function` does not go with `network`"),
            (&format!("{SMALL}function = 7\n"), "function"),
            (&format!("{SMALL}time-limit = \"1d\"\n"), "length of time"),
            (&format!("{SMALL}grace = \"0s\"\n"), "one second at least"),
            (&format!("{SMALL}class = \"density\"\n"), "known: general, throughput, latency"),
            (&SMALL.replace("2\n", "0\n"), "give 1 to 4096 vCPUs"),
        ] {
            let told = problems(text);
            assert!(told.contains(expected) && told.contains("flavours.toml:"), "{text}\n{told}");
        }
    }
}
