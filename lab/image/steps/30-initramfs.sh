# The lab's own initramfs: busybox, a handful of modules, one script. The generic one takes five times as long to boot.
. "$RECIPE/steps/common.sh"

release=$(kernel_release 1)
tree=$OUT/initramfs
mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/run" "$tree/newroot" "$tree/lib/modules"
cp "$rootfs/usr/bin/busybox" "$tree/bin/busybox"
ln -s busybox "$tree/bin/sh"
cp "$RECIPE/initramfs/init" "$tree/init"
chmod 755 "$tree/init"
module_files "$release" lab | while read -r file; do
    cp "$rootfs$file" "$tree/lib/modules/"
    basename "$file" >> "$tree/lib/modules/order"
done
pack "$tree" > "$OUT/initramfs.cpio"
rm -r "$tree"
uncompressed_kernel "$release" > "$OUT/vmlinux"
