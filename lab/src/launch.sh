# Starts QEMU inside the image's tree. Run by `unshare --mount`, so that every mount here ends with QEMU.
# Arguments: state directory, image directory, disks directory, cables directory, directory of the image whose QEMU this is, then
# QEMU's.
state=$1 image=$2 disks=$3 cables=$4 emulator=$5
shift 5

# Before anything can fail: who this is. The number of the process stays the same through every exec below.
read -r line < /proc/$$/stat
# shellcheck disable=SC2086 # split into fields; the name of the process, in brackets, has no blank
set -- $line "$@"
echo "$1 ${22}" > "$state/pid"
shift "$(printf '%s\n' "$line" | wc -w)"

root=$emulator/rootfs
mount --bind "$root" "$root"
mount --bind "$image" "$root/lab/image"
mount --bind "$state" "$root/lab/state"
mount --bind "$disks" "$root/lab/disks"
mount --bind "$cables" "$root/lab/cables"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"

# disk NAME SIZE [BACKING]: an overlay that is made once
while [ "$1" != -- ]; do
    name=$1 size=$2 backing=$3
    shift 3
    [ -e "$disks/$name.qcow2" ] && continue
    # A name of its own until it is complete: a killed qemu-img leaves half a header.
    chroot "$root" qemu-img create -q -f qcow2 ${backing:+-F raw -b "/lab/image/$backing"} "/lab/disks/$name.new" ${size:+"$size"}
    mv "$disks/$name.new" "$disks/$name.qcow2"
done
shift
exec chroot "$root" qemu-system-x86_64 "$@"
