"""A machine with guests as a capture: a kept machine of fixtures/hosts, and QEMU processes in its /proc.

nearmetal reads it like any capture, so what the page shows is made by nearmetal itself and not recorded.
"""

import pathlib
import re
import sys

HOST = "2p-4n-10c-2t-memory-side-cache"
# Names that a guest may have and that a page must show as they are.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\"><script>document.title='owned'</script>",
    "web&amp;<b>bold</b>",
    "n" * 255,
    "🐧 pingüino \u202egnol",
    "--help",
    "${HOME} $(id); `id`",
]


def unpack(tree: str, root: pathlib.Path) -> None:
    """Writes the form that crates/host/src/tree_text.rs describes."""
    directory = root
    lines = iter(tree.splitlines())
    held = next(lines, None)
    while held is not None:
        line, held = held, next(lines, None)
        if head := re.fullmatch(r"\[(/.*)\]", line):
            directory = root / head[1].lstrip("/")
            directory.mkdir(parents=True, exist_ok=True)
        elif match := re.fullmatch(r"(\S+) =", line):
            text = ""
            while held is not None and held.startswith("|"):
                text += held[2:] + "\n"
                held = next(lines, None)
            (directory / match[1]).write_text(text)
        elif match := re.fullmatch(r"(\S+) = (.*)", line):
            (directory / match[1]).write_text(match[2] + "\n")
        elif match := re.fullmatch(r"(\S+) : (.*)", line):
            raw = match[2].encode("latin-1", "replace").decode("unicode_escape")
            (directory / match[1]).write_bytes(raw.encode("latin-1"))
        elif match := re.fullmatch(r"(\S+) -> (.*)", line):
            link = directory / match[1]
            if not link.is_symlink():
                link.symlink_to(match[2])


def guest(root: pathlib.Path, number: int, name: str, cpus: list[int], node: int) -> None:
    """One QEMU process with two vCPUs on these PUs and 2 GiB on this node."""
    pid = 10_000 + number * 10
    process = root / "proc" / str(pid)
    uuid = f"00000000-0000-4000-8000-{number:012d}"
    words = ["/usr/bin/qemu-system-x86_64", "-name", f"guest={name.replace(',', ',,')},debug-threads=on", "-m", "size=2097152k", "-uuid", uuid]
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")
    (process / "stat").write_text(f"{pid} (qemu) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 {number + 77} 0 0 0\n")
    (process / "numa_maps").write_text(f"7f1200000000 bind:{node} anon=524288 dirty=524288 N{node}=524288 kernelpagesize_kB=4\n")
    (process / "maps").write_text("7f1200000000-7f1280000000 rw-p 00000000 00:00 0 \n")
    (process / "status").write_text("Name:\tqemu\nVmSwap:\t       0 kB\n")
    threads = [(pid, "qemu-system-x86", cpus)] + [(pid + 1 + at, f"CPU {at}/KVM", [cpu]) for at, cpu in enumerate(cpus)]
    for thread, comm, allowed in threads:
        task = process / "task" / str(thread)
        task.mkdir(parents=True)
        (task / "comm").write_text(comm + "\n")
        (task / "status").write_text(f"Name:\t{comm}\nPPid:\t1\nCpus_allowed_list:\t{','.join(map(str, allowed))}\n")


def make(root: pathlib.Path, guests: int, fixtures: pathlib.Path) -> list[str]:
    """The machine below `root`; the names of its guests."""
    unpack((fixtures / "hosts" / HOST / "tree.txt").read_text(), root)
    nodes = []
    for node in range(4):
        text = (root / f"sys/devices/system/node/node{node}/cpulist").read_text().strip()
        spans = [span.split("-") for span in text.split(",")]
        nodes.append([cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)])
    settings = {"kernel/hostname": "quad7", "kernel/numa_balancing": "1", "vm/swappiness": "60"}
    for path, value in settings.items():
        (root / "proc/sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "proc/sys" / path).write_text(value + "\n")
    (root / "sys/kernel/mm/ksm").mkdir(parents=True)
    (root / "sys/kernel/mm/ksm/run").write_text("1\n")
    # A small machine has guests as people name them, a large one also all others.
    plain = [f"web{number}" for number in range(1, guests + 1)]
    names = (HOSTILE + plain)[:guests] if guests > 20 else plain
    for number, name in enumerate(names):
        node = number % 4
        at = number // 4 * 2
        guest(root, number, name, [nodes[node][(at + offset) % len(nodes[node])] for offset in range(2)], node)
    return names


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]))
