//! Every key of a flavours file, described once: for the parser, for its suggestions, and for
//! docs/reference/flavours.md.

use nearmetal_fleet::file::{Key, REQUIRED, Table, key};

const NONE: &str = "none";

static TOP: Table = Table {
    head: "the top of the file",
    about: "The guests there are to choose from.",
    keys: &[key("flavour", "tables", REQUIRED, "The flavours.", "[[flavour]]")],
};

static FLAVOUR: Table = Table {
    head: "[[flavour]]",
    about: "A guest, as every run of this flavour has it.",
    keys: &[
        key(
            "name",
            "text",
            REQUIRED,
            "Its name: letters, digits, `-`, `_` and `.`, 40 at most. Unique.",
            "name = \"small\"",
        ),
        key("vcpus", "whole number", REQUIRED, "Virtual CPUs, 1 to 4096, each on a PU of its own.", "vcpus = 4"),
        key("memory", "amount", REQUIRED, "Guest memory: a whole number and MiB, GiB or TiB.", "memory = \"16 GiB\""),
        key(
            "page-size",
            "amount or \"kernel\"",
            "\"kernel\"",
            "Hugepage pool that backs guest memory; \"kernel\" for the kernel's own pages. A pool that is too small grows for \
             the time of the run.",
            "page-size = \"2 MiB\"",
        ),
        key(
            "class",
            "general, throughput, latency",
            "\"general\"",
            "What it is for. `latency` tells the guest that it never waits for a PU.",
            "class = \"latency\"",
        ),
        key(
            "whole-cores",
            "true or false",
            "false",
            "Only cores of which all PUs were given to the run, and nobody else uses one; a PU that is left over stays idle.",
            "whole-cores = true",
        ),
        key(
            "image",
            "text",
            NONE,
            "Base image of its disk, by hash, first digits of it, or readable name (`nearmetal image list`); `--image` goes \
             before it.",
            "image = \"debian-13.qcow2\"",
        ),
        key(
            "bus",
            "virtio, scsi",
            "\"virtio\"",
            "How the guest drives its disk: virtio-blk or virtio-scsi.",
            "bus = \"scsi\"",
        ),
        key(
            "boot",
            "disk, kernel, appliance",
            "\"disk\"",
            "From its disk, from `kernel` and `initrd`, or nearmetal's measuring appliance, which needs no image.",
            "boot = \"kernel\"",
        ),
        key("firmware", "bios, efi", "\"bios\"", "What it boots its disk with.", "firmware = \"efi\""),
        key(
            "kernel",
            "path",
            NONE,
            "Kernel, absolute. With `boot = \"kernel\"`.",
            "kernel = \"/var/lib/libvirt/boot/vmlinuz\"",
        ),
        key(
            "initrd",
            "path",
            NONE,
            "Initial RAM disk, absolute. With `kernel`.",
            "initrd = \"/var/lib/libvirt/boot/initrd\"",
        ),
        key(
            "command-line",
            "text",
            "\"console=ttyS0\"",
            "The kernel's command line. With `kernel`.",
            "command-line = \"console=ttyS0 root=/dev/vda1\"",
        ),
        key(
            "network",
            "none, user",
            "\"none\"",
            "No network, or one inside QEMU: the guest reaches others, and nobody reaches it.",
            "network = \"user\"",
        ),
        key("bridge", "text", NONE, "Bridge of the host to hang it on, instead of `network`.", "bridge = \"br0\""),
        key(
            "function",
            "text",
            NONE,
            "Port of the host, by the interface of its physical function: each guest has a virtual function (SR-IOV) of it for \
             itself, instead of `network` or `bridge`. For root. `nearmetal device vfs` makes them.",
            "function = \"enp57s0\"",
        ),
        key(
            "time-limit",
            "length of time",
            NONE,
            "How long the command may take, from its start: a whole number and s, m or h. `--time-limit` goes before it.",
            "time-limit = \"2h\"",
        ),
        key(
            "grace",
            "length of time",
            "\"10s\"",
            "How long the guest may take to shut down when the run is told to end or has reached its time limit.",
            "grace = \"30s\"",
        ),
        key(
            "boot-limit",
            "length of time",
            "\"5m\"",
            "How long the guest may take until its agent answers.",
            "boot-limit = \"90s\"",
        ),
        key(
            "open-to",
            "text",
            NONE,
            "Group, by its name in /etc/group or by number, whose members may have it with `--mode system` from the service \
             `nearmetal-run.socket`. Without it only root may.",
            "open-to = \"physics\"",
        ),
    ],
};

/// All tables, in the order of the reference.
pub static TABLES: [&Table; 2] = [&TOP, &FLAVOUR];

pub(super) static OF_FLAVOUR: &Table = &FLAVOUR;

/// Whether a key's table is this one, for the reference.
pub fn keys() -> impl Iterator<Item = (&'static Table, &'static Key)> {
    TABLES.iter().flat_map(|table| table.keys.iter().map(|key| (*table, key)))
}
