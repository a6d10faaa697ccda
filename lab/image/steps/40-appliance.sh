# The kernel and initramfs of the lab's guests, and the tree of "a user's own guest" made of the same parts.
. "$RECIPE/steps/common.sh"

release=$(kernel_release 2)
tree=$OUT/guest
mkdir -p "$tree/bin" "$tree/sbin" "$tree/usr/bin" "$tree/usr/sbin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/run" \
    "$tree/tmp" "$tree/root" "$tree/etc" "$tree/newroot" "$tree/lib/modules" "$tree/var/run" "$tree/var/lib"
cp -R "$RECIPE/appliance/." "$tree/"
chmod 755 "$tree/init" "$tree/etc/rc" "$tree/etc/ready" "$tree/sbin/shutdown" "$tree/sbin/modprobe" "$tree/etc/acpi/PWRF/00000080"
cp "$rootfs/usr/bin/busybox" "$tree/bin/busybox"
chroot "$rootfs" busybox --list-full | while read -r applet; do
    mkdir -p "$tree/$(dirname "$applet")"
    [ -e "$tree/$applet" ] || ln -s /bin/busybox "$tree/$applet"
done
copy_program "$tree" /usr/sbin/qemu-ga
# place_modules WHO FILE: the modules of WHO, and FILE with their names in loading order
place_modules() {
    module_files "$release" "$1" | while read -r file; do
        cp "$rootfs$file" "$tree/lib/modules/"
        basename "$file" >> "$tree/lib/modules/$2"
    done
}
place_modules guest order
place_modules fs-xfs order-fs-xfs

# Where libvirt keeps what guests boot. It gives such files to QEMU's user, and AppArmor lets no guest read below /usr/share.
boot=$rootfs/var/lib/libvirt/boot
# What is there so far boots into a disk, or answers through its agent. Not compressed: an emulated guest would take
# seconds to unpack it, and one with all the programs for measuring three times as many.
pack "$tree" > "$boot/small.cpio"

# Debian links fio with clients of Ceph, GlusterFS, NFS, NBD and RDMA, and with libraries for persistent memory. They are two thirds of the
# initramfs, and loading them takes an emulated guest seconds at each start. No disk of a guest is reached through them. The loader
# asks for every library before a program begins, used or not, so each gets an empty one in its place, in the tree's /lib: it has what
# fio wants of it, functions that trap.
mkdir "$rootfs/empty"
wanted=$(nm -D --undefined-only "$rootfs/usr/bin/fio" | sed 's/.* //')
loaded=$(chroot "$rootfs" ldd /usr/bin/fio)
for library in librbd librados libgfapi libnfs libnbd librdmacm libibverbs libpmem libpmemblk; do
    soname=$(objdump -p "$rootfs/usr/bin/fio" | sed -n "s/^ *NEEDED *\($library\.so.*\)/\1/p")
    # Not every release of fio is linked with all of them.
    [ -n "$soname" ] || continue
    real=$rootfs$(printf '%s\n' "$loaded" | sed -n "s/^[[:space:]]*$soname => \(\/[^ ]*\) .*/\1/p")
    [ -f "$real" ] || { echo "fio wants $soname, and ldd does not say where it is" >&2; exit 1; }
    given=$(nm -D --defined-only --without-symbol-versions "$real")
    # Lines of NAME VERSION, the version empty where the library has none.
    printf '%s\n\n%s\n' "$given" "$wanted" | awk '
        NF == 0 { wants = 1; next }
        !wants { has[$NF] = 1; next }
        { split($1, part, "@"); if (part[1] in has) print part[1], part[2] }' | LC_ALL=C sort -k 2 -k 1 -u > "$OUT/symbols"
    {
        echo '.section .note.GNU-stack,"",@progbits'
        echo .text
        while read -r name _; do printf '.globl %s\n.type %s, @function\n%s: ud2\n' "$name" "$name" "$name"; done < "$OUT/symbols"
    } > "$OUT/symbols.s"
    awk '
        $2 != "" && $2 != version { if (version != "") print "};"; version = $2; print version " { global:" }
        $2 != "" { print $1 ";" }
        END { print version == "" ? "{ global: *; };" : "};" }' "$OUT/symbols" > "$OUT/symbols.map"
    as -o "$OUT/symbols.o" "$OUT/symbols.s"
    ld -shared -soname "$soname" --version-script="$OUT/symbols.map" -o "$rootfs/empty/$soname" "$OUT/symbols.o"
done
rm "$OUT"/symbols*
# Seen first, they keep ldd from naming what only the real ones load.
(export LD_LIBRARY_PATH=/empty; copy_program "$tree" /usr/bin/fio)
mv "$tree"/empty/* "$tree/lib/"
rmdir "$tree/empty"
rm -r "$rootfs/empty"
copy_program "$tree" /usr/bin/zstd /usr/bin/numactl /usr/sbin/mkfs.ext4 /usr/sbin/mkfs.xfs
# The tree has its own loader: what lacks a library or a function of one fails here, and not in a guest.
chroot "$tree" /usr/bin/fio --version > /dev/null
for program in '/usr/bin/zstd --version' '/usr/bin/numactl --show' '/usr/sbin/mkfs.ext4 -V' '/usr/sbin/mkfs.xfs -V'; do
    # shellcheck disable=SC2086 # a program and its option
    chroot "$tree" $program > /dev/null 2>&1 || { echo "$program does not run in the appliance" >&2; exit 1; }
done

appliance=$rootfs/usr/share/nearmetal/appliance
mkdir -p "$appliance"
pack "$tree" | gzip -1 -n > "$appliance/initramfs.cpio.gz"
uncompressed_kernel "$release" > "$appliance/vmlinuz"
mkdir -p "$OUT/appliance"
ln "$appliance/vmlinuz" "$appliance/initramfs.cpio.gz" "$OUT/appliance/"

cp "$appliance/vmlinuz" "$appliance/initramfs.cpio.gz" "$boot/"
