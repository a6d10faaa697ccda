# The tree without what no load reads, as one read-only image.
. "$RECIPE/steps/common.sh"

list drop.txt | while read -r pattern; do
    # shellcheck disable=SC2086 # the pattern is meant to expand
    (cd "$rootfs" && rm -rf $pattern)
done
rm -rf "$rootfs/tmp" "$rootfs/run" && mkdir "$rootfs/tmp" "$rootfs/run"
find "$rootfs/dev" -mindepth 1 -delete
# What the image is of, for people who look into it.
list packages.txt > "$rootfs/usr/lib/nearmetal/packages"
# Compressed, since most of the empty database is zeros. The identity is "nearmetal" and "loads" in ASCII: the same tree is the
# same image.
mkfs.erofs -zlz4 -T0 --all-root -U 6e656172-6d65-7461-6c00-6c6f61647300 "$OUT/loads.erofs" "$rootfs"
rm -r "$rootfs"
