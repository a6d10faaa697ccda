# What the packages changed, as one read-only image.
. "$RECIPE/steps/common.sh"

list drop.txt | while read -r pattern; do
    # shellcheck disable=SC2086 # the pattern is meant to expand
    (cd "$rootfs" && rm -rf $pattern)
done
mkdir "$OUT/layer"
(cd "$rootfs" && find . -mindepth 1 -cnewer "$OUT/before" -print0 |
    cpio --quiet --null --pass-through --make-directories --preserve-modification-time "$OUT/layer")
rm -r "$rootfs"
mkfs.erofs -zlz4 "$OUT/layer.erofs" "$OUT/layer"
rm -r "$OUT/layer" "$OUT/before"
