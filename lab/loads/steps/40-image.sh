# The tree without what no load reads, as one read-only image.
. "$RECIPE/steps/common.sh"

list drop.txt | while read -r pattern; do
    # shellcheck disable=SC2086 # the pattern is meant to expand
    (cd "$rootfs" && rm -rf $pattern)
done
rm -rf "$rootfs/tmp" "$rootfs/run" && mkdir "$rootfs/tmp" "$rootfs/run"
find "$rootfs/dev" -mindepth 1 -delete
# What the image is of, for people who look into it.
{ list packages.txt; [ ! -e "$RECIPE/more-packages.txt" ] || list more-packages.txt; } > "$rootfs/usr/lib/nearmetal/packages"
# A library that was dropped with something else would be missed in the middle of a measurement.
runtime=/usr/lib/nearmetal/java/runtime
more=
postgresql=/usr/lib/nearmetal/postgresql/bin
[ ! -e "$rootfs$postgresql" ] || more="$postgresql/postgres $postgresql/psql $postgresql/pgbench"
for program in /usr/sbin/mariadbd /usr/bin/mariadb /usr/bin/sysbench /usr/sbin/nginx /usr/bin/wrk /usr/sbin/dovecot \
    /usr/lib/dovecot/auth /usr/lib/dovecot/imap /usr/lib/dovecot/imap-login $runtime/bin/java \
    $runtime/lib/libfontmanager.so $runtime/lib/libjavajpeg.so $runtime/lib/liblcms.so $more; do
    missing=$(chroot "$rootfs" /lib64/ld-linux-x86-64.so.2 --library-path "$runtime/lib:$runtime/lib/server" --list "$program" 2>&1 | grep -E 'not found|cannot open' || true)
    [ -z "$missing" ] || { echo "$program: $missing"; exit 1; }
done
# Compressed, since most of the empty database is zeros, and as small as lz4 can: readers pay the same. The identity is
# "nearmetal" and "loads" in ASCII: the same tree is the same image.
mkfs.erofs -zlz4hc,12 -T0 --all-root -U 6e656172-6d65-7461-6c00-6c6f61647300 "$OUT/loads.erofs" "$rootfs"
rm -r "$rootfs"
