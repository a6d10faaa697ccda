# An empty cluster of PostgreSQL, for a load to copy: making it takes an emulated machine a minute.
. "$RECIPE/steps/common.sh"

mount -t proc proc "$rootfs/proc"
own=/usr/lib/nearmetal/postgresql
mkdir -p "$rootfs$own"
cp "$RECIPE/postgresql/pgbench" "$RECIPE/postgresql/server.conf" "$rootfs$own/"
chmod 755 "$rootfs$own/pgbench"
# One place for its programs, whatever its number is.
ln -s "../../postgresql/$(ls "$rootfs/usr/lib/postgresql")/bin" "$rootfs$own/bin"
# The server refuses to be root's, here and later. Segments of 4 MiB: what is kept of the log takes a small drive.
mkdir "$rootfs$own/empty"
chown 65534:65534 "$rootfs$own/empty"
chroot "$rootfs" setpriv --reuid=65534 --regid=65534 --clear-groups $own/bin/initdb --pgdata=$own/empty --username=postgres \
    --auth=trust --encoding=UTF8 --locale=C --wal-segsize=4 --no-sync --no-instructions
cat "$rootfs$own/server.conf" >> "$rootfs$own/empty/postgresql.conf"
rm "$rootfs$own/server.conf"
umount "$rootfs/proc"
# Its just-in-time compiler is off, and is four times as large as all the rest.
libraries=$rootfs/usr/lib/x86_64-linux-gnu
rm -rf "$rootfs"/usr/lib/postgresql/*/lib/bitcode "$rootfs"/usr/lib/postgresql/*/lib/llvmjit* "$rootfs"/usr/lib/llvm-* \
    "$libraries"/libLLVM* "$libraries"/libz3*
