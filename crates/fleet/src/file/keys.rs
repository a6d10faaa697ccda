//! Every table and key of a fleet file, described once: what the parser knows, what it suggests, and what
//! docs/reference/fleet-file.md says.

/// A table of the file.
#[derive(Debug)]
pub struct Table {
    /// As it is written: `[[vm]]`.
    pub head: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its keys, in the order they are best read.
    pub keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value is.
    pub kind: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it means.
    pub about: &'static str,
    /// It, in use.
    pub example: &'static str,
}

impl Table {
    /// The key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// A key, described.
pub const fn key(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    about: &'static str,
    example: &'static str,
) -> Key {
    Key { name, kind, default, about, example }
}

/// In the place of a default: there is none.
pub const REQUIRED: &str = "required";
const NONE: &str = "none";

const VCPUS: Key = key("vcpus", "whole number", REQUIRED, "Virtual CPUs, 1 to 65536.", "vcpus = 4");
const MEMORY: Key = key(
    "memory",
    "amount",
    REQUIRED,
    "Guest memory: a whole number and MiB, GiB or TiB. A multiple of `page-size`.",
    "memory = \"16 GiB\"",
);
const PAGE_SIZE: Key = key(
    "page-size",
    "amount or \"kernel\"",
    "\"kernel\"",
    "Hugepage pool that backs guest memory; \"kernel\" for the kernel's own pages.",
    "page-size = \"1 GiB\"",
);
const CLASS: Key = key(
    "class",
    "general, density, throughput, latency, windows, passthrough",
    "\"general\"",
    "What it is for. `density` floats: many guests share CPUs on purpose.",
    "class = \"latency\"",
);
const SMT: Key = key(
    "smt",
    "prefer, isolate, require, none",
    "\"prefer\"",
    "How its vCPUs use the hardware threads of a core: whole cores where there are some (`prefer`), one vCPU a core with \
     the other threads idle (`isolate`), whole cores only (`require`), any threads (`none`). For dedicated CPUs.",
    "smt = \"isolate\"",
);
const CPUS: Key = key(
    "cpus",
    "\"dedicated\" or { shared = RATIO }",
    "\"dedicated\"",
    "One hardware thread a vCPU, its own; or vCPUs that float over what nobody owns, RATIO vCPUs (1 to 100) a thread.",
    "cpus = { shared = 4.0 }",
);
const NUMA: Key = key(
    "numa",
    "\"hidden\", \"mirror\" or a number of cells",
    "\"hidden\"",
    "NUMA as the guest sees it: nothing (`hidden`), a cell for each host node it gets (`mirror`), or exactly so many \
     cells, each on a host node of its own.",
    "numa = 2",
);
const PRIORITY: Key = key(
    "priority",
    "whole number",
    "0",
    "Higher is placed first. A fleet has 8 different ones at most.",
    "priority = 10",
);
const SELECT: Key = key(
    "hosts",
    "table with `names` and `labels`",
    "all hosts",
    "Hosts it may be on: one of these names, with all of these labels.",
    "hosts = { names = [\"alpha\", \"beta\"], labels = { disk = \"nvme\" } }",
);
const MOVABLE: Key = key(
    "movable",
    "true or false",
    "false",
    "Whether a plan may move it from where it runs: to other nodes, and to other hosts unless `on` holds it.",
    "movable = true",
);
const TEMPLATE: Key = key(
    "template",
    "path",
    NONE,
    "Domain XML to start from, counted from this file's directory. `{name}` stands for the VM's name. Disks and \
     interfaces of this file are added where it lacks them.",
    "template = \"base.xml\"",
);
const FIRMWARE: Key =
    key("firmware", "bios, efi", "the template's, or libvirt's default", "Firmware.", "firmware = \"efi\"");

pub(super) static TOP: Table = Table {
    head: "the top of the file",
    about: "What holds for the whole fleet.",
    keys: &[
        key(
            "spread",
            "fewest, most",
            "\"fewest\"",
            "Gather the VMs on as few hosts as possible, or spread them over as many.",
            "spread = \"most\"",
        ),
        key("defaults", "table", NONE, "What holds for every VM that does not say otherwise.", "[defaults]"),
        key("host", "tables", REQUIRED, "The hosts.", "[[host]]"),
        key("vm", "tables", NONE, "The VMs.", "[[vm]]"),
        key("group", "tables", NONE, "VMs that must be together, or apart.", "[[group]]"),
    ],
};

pub(super) static DEFAULTS: Table = Table {
    head: "[defaults]",
    about: "Holds for every VM that does not say otherwise. The keys mean what they mean in [[vm]].",
    keys: &[VCPUS, MEMORY, PAGE_SIZE, CLASS, SMT, CPUS, NUMA, PRIORITY, SELECT, MOVABLE, TEMPLATE, FIRMWARE],
};

pub(super) static HOST: Table = Table {
    head: "[[host]]",
    about: "A machine VMs may run on, and exactly one way to read it: `local`, `ssh`, `uri` or `capture`.",
    keys: &[
        key("name", "text", REQUIRED, "Its name in this file. Unique.", "name = \"alpha\""),
        key("local", "true", NONE, "It is the machine that runs nearmetal.", "local = true"),
        key("ssh", "text", NONE, "NAME or USER@NAME, reached over ssh.", "ssh = \"root@alpha\""),
        key(
            "ssh-command",
            "text",
            "\"ssh\"",
            "Program and options that reach it, split at spaces. Only with `ssh`.",
            "ssh-command = \"ssh -p 2201 -i key\"",
        ),
        key(
            "uri",
            "text",
            NONE,
            "libvirt URI, for hosts that give no shell: libvirt tells less than the host itself.",
            "uri = \"qemu+ssh://alpha/system\"",
        ),
        key(
            "capture",
            "path",
            NONE,
            "A capture of it (`nearmetal capture`), counted from this file's directory.",
            "capture = \"alpha.tar.gz\"",
        ),
        key("labels", "table of texts", NONE, "Labels for `hosts` of VMs.", "labels = { disk = \"nvme\" }"),
        key(
            "failure-domain",
            "text",
            "its own",
            "Rack, power feed or room: hosts with the same one go down together.",
            "failure-domain = \"rack 1\"",
        ),
        key("keep", "table", "see below", "What the host keeps for itself.", "keep = { cores-per-node = 1 }"),
    ],
};

pub(super) static KEEP: Table = Table {
    head: "keep",
    about: "What a host keeps for itself.",
    keys: &[
        key(
            "cores-per-node",
            "whole number",
            "0",
            "Cores of each node, the lowest ones; one core at least is left to VMs.",
            "keep = { cores-per-node = 1 }",
        ),
        key(
            "first-core",
            "true or false",
            "true",
            "The core of the first CPU, where interrupts and timers that belong nowhere else run.",
            "keep = { first-core = false }",
        ),
        key(
            "memory-per-node",
            "amount",
            "5 % of the node",
            "Memory of each node that is left to the host.",
            "keep = { memory-per-node = \"4 GiB\" }",
        ),
        key(
            "pools-grow",
            "true or false",
            "true",
            "Whether a plan may add hugepages below 1 GiB to pools.",
            "keep = { pools-grow = false }",
        ),
    ],
};

pub(super) static VM: Table = Table {
    head: "[[vm]]",
    about: "A VM, or several alike. With `on`, its definition stays as it is on that host, and disks, interfaces and \
            devices here only say what it is to be near.",
    keys: &[
        key("name", "text", REQUIRED, "Its name, libvirt's domain name. Unique.", "name = \"db\""),
        key(
            "count",
            "whole number",
            "one VM of that very name",
            "So many alike: NAME-1, NAME-2, …. `{name}` in paths and volumes stands for each one's name.",
            "count = 3",
        ),
        key(
            "uuid",
            "text",
            NONE,
            "UUID of the domain it is, where several hosts have a domain of its name.",
            "uuid = \"c7a5fdbd-edaf-9455-926a-d65c16db1809\"",
        ),
        key(
            "on",
            "host name",
            NONE,
            "The host on which it is defined and where its disks are: it stays on that host.",
            "on = \"alpha\"",
        ),
        VCPUS,
        MEMORY,
        PAGE_SIZE,
        CLASS,
        SMT,
        CPUS,
        NUMA,
        PRIORITY,
        SELECT,
        MOVABLE,
        TEMPLATE,
        FIRMWARE,
        key("disk", "tables", NONE, "Its disks.", "[[vm.disk]]"),
        key("nic", "tables", NONE, "Its network interfaces.", "[[vm.nic]]"),
        key("device", "tables", NONE, "PCI functions handed through to it.", "[[vm.device]]"),
    ],
};

pub(super) static SHARED: Table = Table {
    head: "cpus",
    about: "CPUs that VMs share.",
    keys: &[key(
        "shared",
        "number",
        REQUIRED,
        "vCPUs a hardware thread may carry, 1 to 100.",
        "cpus = { shared = 4.0 }",
    )],
};

pub(super) static SELECTOR: Table = Table {
    head: "hosts",
    about: "Hosts a VM may be on.",
    keys: &[
        key("names", "list of host names", "any", "One of these hosts.", "hosts = { names = [\"alpha\"] }"),
        key(
            "labels",
            "table of texts",
            "any",
            "Hosts with all of these labels.",
            "hosts = { labels = { disk = \"nvme\" } }",
        ),
    ],
};

const LOCALITY: &str = "required, preferred, far";

pub(super) static DISK: Table = Table {
    head: "[[vm.disk]]",
    about: "A disk: exactly one of `device`, `file`, or `pool` with `volume`.",
    keys: &[
        key("device", "path", NONE, "A whole block device of the host, or a partition.", "device = \"/dev/nvme1n1\""),
        key("file", "path", NONE, "A file of the host, absolute.", "file = \"/var/lib/libvirt/images/{name}.qcow2\""),
        key("format", "qcow2, raw", "\"qcow2\"", "Format of `file`. Never guessed.", "format = \"raw\""),
        key("pool", "text", NONE, "A libvirt storage pool.", "pool = \"default\""),
        key("volume", "text", NONE, "A volume of `pool`.", "volume = \"{name}.qcow2\""),
        key("bus", "virtio, scsi", "\"virtio\"", "virtio-blk or virtio-scsi.", "bus = \"scsi\""),
        key(
            "read-only",
            "true or false",
            "false",
            "The guest may only read it: then several VMs may have the same one.",
            "read-only = true",
        ),
        key(
            "drive",
            "text",
            "the drive of `device`",
            "Host drive that holds the file or the pool, where the VM is to be near it.",
            "drive = \"nvme0n1\"",
        ),
        key(
            "locality",
            LOCALITY,
            "\"preferred\" with `device` or `drive`",
            "How near the drive must be: on the VM's nodes or refused, as near as can be, anywhere.",
            "locality = \"required\"",
        ),
    ],
};

pub(super) static NIC: Table = Table {
    head: "[[vm.nic]]",
    about: "A network interface.",
    keys: &[
        key(
            "kind",
            "virtio, vhost, macvtap, vf",
            REQUIRED,
            "virtio by QEMU, virtio by the kernel's vhost-net, macvtap on `interface`, or a virtual function handed \
             through.",
            "kind = \"vhost\"",
        ),
        key(
            "network",
            "text",
            NONE,
            "libvirt network, for virtio and vhost. For vf: a network that deals the VFs of `interface` (`<forward \
             mode='hostdev'>`) when the VM starts; the plan then counts them, and does not say which.",
            "network = \"default\"",
        ),
        key("bridge", "text", NONE, "Bridge of the host, for virtio and vhost.", "bridge = \"br0\""),
        key(
            "interface",
            "text",
            NONE,
            "Host interface: macvtap's (required there), the physical function of a VF (any without), or the uplink to \
             be near.",
            "interface = \"ens1f0\"",
        ),
        key("mac", "text", "libvirt chooses", "MAC address. Unique in the fleet.", "mac = \"52:54:00:12:34:56\""),
        key("vlan", "whole number", NONE, "VLAN, 1 to 4094.", "vlan = 100"),
        key(
            "locality",
            LOCALITY,
            "\"preferred\" with `interface` or kind vf",
            "How near the interface must be.",
            "locality = \"far\"",
        ),
    ],
};

pub(super) static DEVICE: Table = Table {
    head: "[[vm.device]]",
    about: "PCI functions handed through: exactly one of `class`, `id` or `function`.",
    keys: &[
        key(
            "class",
            "4 hex digits",
            NONE,
            "Base class and subclass: 0302 is a 3D controller, 0108 an NVMe drive (`lspci -nn` shows it in brackets).",
            "class = \"0302\"",
        ),
        key(
            "id",
            "VENDOR:DEVICE",
            NONE,
            "Vendor and device id in hex, as `lspci -nn` shows them.",
            "id = \"10de:1db6\"",
        ),
        key("function", "PCI address", NONE, "This very function.", "function = \"0000:41:00.0\""),
        key("count", "whole number", "1", "How many, 1 to 4096.", "count = 2"),
        key("locality", LOCALITY, "\"preferred\"", "How near they must be.", "locality = \"required\""),
    ],
};

pub(super) static GROUP: Table = Table {
    head: "[[group]]",
    about: "VMs whose places depend on each other. A VM whose rule cannot hold is refused.",
    keys: &[
        key("name", "text", REQUIRED, "Its name. Unique.", "name = \"db\""),
        key(
            "scope",
            "host, node, failure-domain",
            "\"host\"",
            "What members share or do not share.",
            "scope = \"failure-domain\"",
        ),
        key(
            "rule",
            "together, apart, apart-by-label",
            REQUIRED,
            "All in one place; no two in one place; or none in one place with members of another label.",
            "rule = \"apart\"",
        ),
        key(
            "members",
            "list of VM names",
            "required, but for apart-by-label",
            "Its VMs. The name of one with a `count` stands for all of them.",
            "members = [\"db\"]",
        ),
        key(
            "labels",
            "table of lists of VM names",
            "required for apart-by-label",
            "Its VMs by label, for the rule apart-by-label.",
            "labels = { red = [\"web\"], blue = [\"batch\"] }",
        ),
    ],
};

/// All tables, in the order of the reference.
pub static TABLES: [&Table; 11] =
    [&TOP, &DEFAULTS, &HOST, &KEEP, &VM, &SHARED, &SELECTOR, &DISK, &NIC, &DEVICE, &GROUP];
