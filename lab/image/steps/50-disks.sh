# Trees into ext4 images, without a loop device.
. "$RECIPE/steps/common.sh"

# filesystem IMAGE SIZE LABEL TREE
filesystem() {
    truncate --size="$2" "$1"
    mke2fs -q -t ext4 -L "$3" -m 0 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0 -d "$4" "$1"
}

filesystem "$OUT/guest-root.ext4" 192M guest "$OUT/guest"
rm -r "$OUT/guest"
filesystem "$OUT/root.ext4" 8G lab "$rootfs"
