# The Java runtime, linked of the modules that loads use, and the Java programs, compiled.
. "$RECIPE/steps/common.sh"

mount -t proc proc "$rootfs/proc"
tools=/usr/lib/jvm/java-21-openjdk-amd64
own=$rootfs/usr/lib/nearmetal
kits=/usr/lib/nearmetal/kits
mkdir -p "$own/java"
cp -R "$RECIPE/java" "$rootfs/tmp/java"
chroot "$rootfs" "$tools/bin/jlink" --module-path "$tools/jmods" \
    --add-modules "$(list java-modules.txt | tr '\n' ',' | sed 's/,$//')" \
    --strip-java-debug-attributes --no-header-files --no-man-pages --output /usr/lib/nearmetal/java/runtime
# The driver of MariaDB, out of the way of drop.txt.
cp -L "$rootfs/usr/share/java/mariadb-java-client.jar" "$own/java/mariadb.jar"
chroot "$rootfs" sh -euc "$tools/bin/javac -Xlint:all -Werror -d /usr/lib/nearmetal/java/classes /tmp/java/*/*.java"
rm -r "$rootfs/tmp/java"
# What runs a kit of the user's, and stand-ins for kits: of their shape and none of SPEC's work, for tests.
cp "$RECIPE/java/kit" "$own/java/kit"
chmod 755 "$own/java/kit"
cp -R "$RECIPE/kits" "$own/kits"
chroot "$rootfs" sh -euc "cd $kits
    for edition in 2005 2015; do
        find $kits/\$edition -name '*.java' > /tmp/sources
        $tools/bin/javac -Xlint:all -Werror -d /tmp/\$edition @/tmp/sources
        xargs rm < /tmp/sources
    done
    rm -r 2005/spec
    $tools/bin/jar --create --date=2000-01-01T00:00:00Z --file 2005/jbb.jar -C /tmp/2005 .
    $tools/bin/jar --create --date=2000-01-01T00:00:00Z --file 2005/check.jar -C /tmp/2005 spec/jbb
    $tools/bin/jar --create --date=2000-01-01T00:00:00Z --file 2015/specjbb2015.jar --main-class StandIn -C /tmp/2015 ."
# The archive of preloaded classes: a JVM starts in a fraction of the time.
chroot "$rootfs" /usr/lib/nearmetal/java/runtime/bin/java -Xshare:dump -XX:+UseParallelGC -Xmx64m > /dev/null
umount "$rootfs/proc"
