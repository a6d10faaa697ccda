# The programs of the load `web`; its server and its client are Debian's.
. "$RECIPE/steps/common.sh"

own=$rootfs/usr/lib/nearmetal/web
mkdir -p "$own"
cp "$RECIPE/web/load" "$RECIPE/web/wrk.lua" "$own/"
chmod 755 "$own/load"
