# Shared by the steps. Each is run by `sh -eu` with: RECIPE (these files), OUT (the image being built),
# MIRROR and SUITE (where packages come from). Only what changes OUT belongs in a step.
rootfs=$OUT/rootfs

# list FILE: its lines without comments and blanks
list() {
    sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$RECIPE/$1"
}

# kernel_release N: release of the N-th kernel of kernels.txt
kernel_release() {
    sed -n "$1p" "$OUT/kernels"
}

# uncompressed_kernel RELEASE: the kernel as the ELF file inside vmlinuz, on standard output. Booted as it is (by its PVH
# entry) it spares the decompression, which takes seconds under emulation. Offsets: the kernel's Documentation/arch/x86/boot.rst.
uncompressed_kernel() {
    kernel=$rootfs/boot/vmlinuz-$1
    setup_sectors=$(od -An -tu1 -j497 -N1 "$kernel")
    payload_offset=$(od -An -tu4 -j584 -N4 "$kernel")
    payload_length=$(od -An -tu4 -j588 -N4 "$kernel")
    start=$(((setup_sectors + 1) * 512 + payload_offset))
    # Bookworm's kernel is packed by lz4, trixie's by zstd: the first bytes tell.
    case $(od -An -tx1 -j$start -N4 "$kernel") in
        ' 02 21 4c 18') unpack=lz4 ;;
        *) unpack=zstd ;;
    esac
    # The last four bytes are the length once more.
    tail -c +$((start + 1)) "$kernel" | head -c $((payload_length - 4)) |
        chroot "$rootfs" $unpack -dc
}

# module_files RELEASE WHO: paths of the modules of modules.txt with their dependencies, in loading order
module_files() {
    release=$1
    list modules.txt | sed -n "s/^$2 //p" | while read -r module; do
        chroot "$rootfs" modprobe --set-version "$release" --show-depends "$module" 2>/dev/null || true
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++'
}

# copy_program TREE PROGRAM…: programs of the root file system with the libraries they load
copy_program() {
    tree=$1
    shift
    for program; do
        {
            echo "$program"
            chroot "$rootfs" ldd "$program" | grep -o '/[^ ]*'
        } | while read -r file; do
            mkdir -p "$tree$(dirname "$file")"
            [ -e "$tree$file" ] || cp -L "$rootfs$file" "$tree$file"
        done
    done
}

# pack TREE: the tree as a cpio archive on standard output, the same bytes for the same tree
pack() {
    (cd "$1" && find . -print0 | LC_ALL=C sort -z | cpio --quiet --null --create --format=newc --owner=0:0 --reproducible)
}
