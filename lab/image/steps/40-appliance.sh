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

copy_program "$tree" /usr/bin/fio /usr/bin/zstd /usr/bin/numactl /usr/sbin/mkfs.ext4 /usr/sbin/mkfs.xfs

appliance=$rootfs/usr/share/nearmetal/appliance
mkdir -p "$appliance"
pack "$tree" | gzip -1 -n > "$appliance/initramfs.cpio.gz"
uncompressed_kernel "$release" > "$appliance/vmlinuz"
mkdir -p "$OUT/appliance"
ln "$appliance/vmlinuz" "$appliance/initramfs.cpio.gz" "$OUT/appliance/"

cp "$appliance/vmlinuz" "$appliance/initramfs.cpio.gz" "$boot/"
