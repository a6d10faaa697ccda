# How the load of a server begins. Read by the scripts of such loads (database/oltp, web/load, postgresql/pgbench), which have set
# `name`, what they are called; `prepare`, the seconds that preparing may take from the start of the probe on; and later `server`, the
# number of the server's process. /run/server.log is what the server says, and `complaint` prints what of that a person needs.
# shellcheck shell=sh disable=SC2154

# Hundredths of a second since the machine was switched on.
uptime() {
    read -r now _ < /proc/uptime
    echo "${now%.*}${now#*.}"
}
# The probe's start, before it made the file system.
begun=${NEARMETAL_BEGUN:-$(uptime)}

fail() {
    echo "$name: $1" >&2
    [ ! -s /run/server.log ] || complaint | tail -n 3 | cut -c 1-300 >&2 || true
    exit 1
}
is_there() { kill -0 "$server" 2> /dev/null || fail "the server ended $1"; }
# until_it_answers COMMAND…: which is tried until it succeeds.
until_it_answers() {
    until "$@" > /run/answer.log 2>&1; do
        is_there "while it started"
        [ $(($(uptime) - begun)) -lt $((prepare * 100)) ] || fail "the server did not answer within $prepare s"
        usleep 100000
    done
}
# Until the load begins: where there is a gate (`nearmetal-probe programs --gate`) it says that all is ready, and waits to be told, so
# that loads that begin together measure together, whatever preparing took.
until_the_load_begins() {
    took=$(($(uptime) - begun))
    echo "prepared_hundredths $took"
    [ "$took" -le $((prepare * 100)) ] ||
        fail "preparing took $((took / 100)).$((took % 100 / 10)) s, and $prepare s is the limit: allow more time with --start, or use a smaller --span"
    if [ -n "${NEARMETAL_GATE:-}" ]; then
        echo > "$NEARMETAL_GATE/ready"
        read -r told < "$NEARMETAL_GATE/begin"
        [ "$told" = open ] || { end; exit 1; }
    fi
    load_begun=$(uptime)
}
# Until so many hundredths of the load are over; no time at all if they are.
until_at() {
    left=$(($1 - ($(uptime) - load_begun)))
    # usleep takes little more than an hour.
    [ "$left" -le 0 ] || { sleep $((left / 100)); usleep $((left % 100 * 10000)); }
}
# The data are thrown away: nobody waits for an orderly end.
end() {
    kill -9 "$server"
    wait "$server" 2> /dev/null || true
}
