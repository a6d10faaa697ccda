# An empty database, for a load to copy: making its system tables takes an emulated machine a minute.
. "$RECIPE/steps/common.sh"

mount -t proc proc "$rootfs/proc"
own=/usr/lib/nearmetal/database
mkdir -p "$rootfs$own"
cp "$RECIPE/database/server.cnf" "$RECIPE/database/oltp" "$RECIPE/database/serve" "$rootfs$own/"
chmod 755 "$rootfs$own/oltp" "$rootfs$own/serve"
{
    printf '%s\n' 'create database mysql;' 'use mysql;' 'set @auth_root_socket = null;' \
        "set @current_hostname = 'localhost';"
    for part in system_tables performance_tables system_tables_data; do
        cat "$rootfs/usr/share/mariadb/mariadb_$part.sql"
    done
    printf '%s\n' 'create database sbtest;'
} > "$rootfs/tmp/first.sql"
chroot "$rootfs" sh -euc "
    mkdir $own/empty
    /usr/sbin/mariadbd --defaults-file=$own/server.cnf --datadir=$own/empty --innodb-flush-method=fsync --innodb-use-native-aio=0 \
        --bootstrap < /tmp/first.sql"
rm "$rootfs/tmp/first.sql"
umount "$rootfs/proc"
# Temporary tables are made anew at each start, and no program starts with somebody else's identity.
rm -f "$rootfs$own/empty/ibtmp1" "$rootfs$own/empty"/*.pid
