# Debian packages into a directory, and the kernels beside them.
. "$RECIPE/steps/common.sh"

kernels=$(list kernels.txt | tr '\n' ' ')
absent=$(list absent.txt | sed -n "s/^$SUITE //p")
mmdebstrap --mode=root --variant=minbase --format=directory --quiet \
    --hook-dir=/usr/share/mmdebstrap/hooks/eatmydata \
    --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Languages "none"' \
    --aptopt='Acquire::Retries "3"' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --include="$(list packages.txt | grep -vxF "${absent:--}" | tr '\n' ',' | sed 's/,$//')" \
    --customize-hook='chroot "$1" sh -eu -c "
        cd /tmp
        for kernel in '"$kernels"'; do
            package=\$(apt-cache depends \$kernel | sed -n \"s/ *Depends: //p\" | head -n 1)
            apt-get -q download \$package
            mv \${package}_*.deb \$kernel.deb
        done"' \
    --customize-hook='mkdir -p "$1/usr/lib/kernels"; mv "$1"/tmp/*.deb "$1/usr/lib/kernels"' \
    "$SUITE" "$rootfs" "$MIRROR"

: > "$OUT/kernels"
for kernel in $kernels; do
    archive=$rootfs/usr/lib/kernels/$kernel.deb
    unpacked=$OUT/unpacked
    mkdir "$unpacked"
    dpkg-deb -x "$archive" "$unpacked"
    # Before trixie, modules are packed below /lib.
    [ -d "$unpacked/usr/lib/modules" ] || { mkdir -p "$unpacked/usr/lib"; mv "$unpacked/lib/modules" "$unpacked/usr/lib/"; }
    release=$(ls "$unpacked/usr/lib/modules")
    echo "$release" >> "$OUT/kernels"
    mkdir -p "$rootfs/usr/lib/modules"
    mv "$unpacked/usr/lib/modules/$release" "$rootfs/usr/lib/modules/"
    mv "$unpacked/boot/vmlinuz-$release" "$rootfs/boot/vmlinuz-$release"
    mv "$unpacked/boot/config-$release" "$rootfs/boot/config-$release"
    rm -r "$unpacked"
done
rm -r "$rootfs/usr/lib/kernels"

# An older release has no QEMU that emulates the labs' machines: that of the newest image does.
[ -z "$BASE" ] || ln -s "../$(basename "$BASE")" "$OUT/base"
