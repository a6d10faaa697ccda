# Debian packages, unpacked into a tree that programs can be run in by chroot.
. "$RECIPE/steps/common.sh"

mmdebstrap --mode=root --variant=extract --format=directory --quiet \
    --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Languages "none"' \
    --aptopt='Acquire::Retries "3"' \
    --include="$({ list packages.txt; [ ! -e "$RECIPE/more-packages.txt" ] || list more-packages.txt; } | tr '\n' ',' | sed 's/,$//')" \
    "$SUITE" "$rootfs" "$MIRROR"

# What base-files does when it is installed.
for directory in bin sbin lib lib64; do
    mkdir -p "$rootfs/usr/$directory"
    [ -e "$rootfs/$directory" ] || ln -s "usr/$directory" "$rootfs/$directory"
done
# Mount points: the kernel's file systems, what programs write, and the file system of the device that a load works on.
mkdir -p "$rootfs/proc" "$rootfs/sys" "$rootfs/dev" "$rootfs/tmp" "$rootfs/run" "$rootfs/data"
for applet in $(chroot "$rootfs" /usr/bin/busybox --list); do
    [ -e "$rootfs/usr/bin/$applet" ] || [ -e "$rootfs/usr/sbin/$applet" ] || ln -s busybox "$rootfs/usr/bin/$applet"
done
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' > "$rootfs/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' > "$rootfs/etc/group"
printf '127.0.0.1 localhost\n' > "$rootfs/etc/hosts"
# What loads that are servers have in common.
mkdir -p "$rootfs/usr/lib/nearmetal"
cp "$RECIPE/server.sh" "$rootfs/usr/lib/nearmetal/"
