# The packages made into the lab's operating system: our files over theirs, units masked, the rest dropped.
. "$RECIPE/steps/common.sh"

list drop.txt | while read -r pattern; do
    # shellcheck disable=SC2086 # the pattern is meant to expand
    (cd "$rootfs" && rm -rf $pattern)
done

cp -R "$RECIPE/rootfs/." "$rootfs/"

# Profiles of libvirt confine what they confine on any host; the rest are for programs that are not here.
find "$rootfs/etc/apparmor.d" -maxdepth 1 -type f ! -name 'usr.*libvirt*' -delete

# Decompressing modules under emulation costs seconds at every boot.
find "$rootfs/usr/lib/modules" -name '*.ko.xz' -print0 | xargs -0 -r -n 64 -P 2 unxz
for position in 1 2; do
    chroot "$rootfs" depmod "$(kernel_release $position)"
done

units=$rootfs/etc/systemd/system
list units-off.txt | while read -r unit; do
    ln -sf /dev/null "$units/$unit"
done
list units-on.txt | while read -r unit; do
    chroot "$rootfs" env SYSTEMD_IGNORE_CHROOT=1 systemctl --quiet enable "$unit"
done
mkdir -p "$rootfs/etc/systemd/system-generators"
list generators-off.txt | while read -r generator; do
    ln -sf /dev/null "$rootfs/etc/systemd/system-generators/$generator"
done
ln -sf /usr/lib/systemd/system/multi-user.target "$units/default.target"

# D-Bus starts these two when libvirt needs them, at the first guest; at boot it would wait for them.
rm -f "$units/multi-user.target.wants/virtlogd.service"
sed '/systemd-machined/d' "$rootfs/usr/lib/systemd/system/libvirtd.service" > "$units/libvirtd.service"

# Mount points of the outer QEMU, which runs in this tree.
mkdir -p "$rootfs/lab/image" "$rootfs/lab/state" "$rootfs/lab/disks" "$rootfs/lab/cables"
echo lab > "$rootfs/etc/hostname"
printf '127.0.0.1 localhost lab\n' > "$rootfs/etc/hosts"
: > "$rootfs/etc/machine-id"
rm -f "$rootfs/etc/resolv.conf"
ln -sf ../usr/share/zoneinfo/Etc/UTC "$rootfs/etc/localtime"
ln -sf ../default.xml "$rootfs/etc/libvirt/qemu/networks/autostart/default.xml"

# Says to every "first boot after an update" unit that it has run.
touch "$rootfs/etc/.updated" "$rootfs/var/.updated"
