# Debian's packages, installed over a copy of the lab's operating system.
. "$RECIPE/steps/common.sh"

cp -a --reflink=auto "$BASE/rootfs" "$rootfs"
cp -L /etc/resolv.conf "$rootfs/etc/resolv.conf"
# Nothing starts in the copy.
printf '#!/bin/sh\nexit 101\n' > "$rootfs/usr/sbin/policy-rc.d"
chmod 755 "$rootfs/usr/sbin/policy-rc.d"
echo "deb $MIRROR $SUITE main" > "$rootfs/etc/apt/sources.list"
mount -t proc proc "$rootfs/proc"
# What changes from here on is the layer. A change time cannot be set by a package, as a file's own time can.
touch "$OUT/before"
chroot "$rootfs" env DEBIAN_FRONTEND=noninteractive sh -euc "
    apt-get -q -o Acquire::Languages=none -o Acquire::Retries=3 update
    apt-get -q -y -o Acquire::Retries=3 -o APT::Install-Recommends=false -o Dpkg::Options::=--force-unsafe-io install $(list packages.txt | tr '\n' ' ')"
umount "$rootfs/proc"
