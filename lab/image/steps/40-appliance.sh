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

# empty_libraries TREE PROGRAM LIBRARY…: libraries in TREE/lib in the place of these (libX, whatever its version) that PROGRAM is linked
# with. They have what it wants of them, each a function that traps: the loader asks for every library before a program begins, used or not.
empty_libraries() {
    tree=$1 program=$2
    shift 2
    mkdir -p "$tree/lib"
    wanted=$(nm -D --undefined-only "$rootfs$program" | sed 's/.* //')
    for library; do
        soname=$(objdump -p "$rootfs$program" | sed -n "s/^ *NEEDED *\($library\.so.*\)/\1/p")
        [ -n "$soname" ] || continue
        real=$(chroot "$rootfs" ldd "$program" | sed -n "s/^[[:space:]]*$soname => \([^ ]*\) .*/\1/p")
        # Lines of NAME VERSION, the version empty where the library has none.
        { nm -D --defined-only --without-symbol-versions "$rootfs$real"; echo; echo "$wanted"; } |
            awk 'NF == 0 { wants = 1; next } !wants { has[$NF] = 1; next } { split($1, part, "@"); if (part[1] in has) print part[1], part[2] }' |
            LC_ALL=C sort -u > "$OUT/symbols"
        while read -r name _; do printf '.globl %s\n.type %s, @function\n%s: ud2\n' "$name" "$name" "$name"; done < "$OUT/symbols" |
            as -o "$OUT/symbols.o" -
        LC_ALL=C sort -k 2 "$OUT/symbols" | awk '
            $2 != "" && $2 != version { if (version != "") print "};"; version = $2; print version " { global:" }
            $2 != "" { print $1 ";" }
            END { print version == "" ? "{ global: *; };" : "};" }' > "$OUT/symbols.map"
        ld -shared -soname "$soname" --version-script="$OUT/symbols.map" -o "$tree/lib/$soname" "$OUT/symbols.o"
        rm "$OUT/symbols" "$OUT/symbols.o" "$OUT/symbols.map"
    done
}

# Debian links fio with clients of Ceph, GlusterFS, NFS, NBD and RDMA. They are two thirds of the initramfs, and loading them takes an
# emulated guest seconds at each start. No disk of a guest is reached through them.
empty_libraries "$tree" /usr/bin/fio librbd librados libgfapi libnfs libnbd librdmacm libibverbs libpmem
copy_program "$tree" /usr/bin/fio /usr/bin/zstd /usr/bin/numactl /usr/sbin/mkfs.ext4 /usr/sbin/mkfs.xfs

appliance=$rootfs/usr/share/nearmetal/appliance
mkdir -p "$appliance"
pack "$tree" | gzip -1 -n > "$appliance/initramfs.cpio.gz"
uncompressed_kernel "$release" > "$appliance/vmlinuz"
mkdir -p "$OUT/appliance"
ln "$appliance/vmlinuz" "$appliance/initramfs.cpio.gz" "$OUT/appliance/"

cp "$appliance/vmlinuz" "$appliance/initramfs.cpio.gz" "$boot/"
