# The Java runtime, linked of the modules that loads use, and the Java programs, compiled.
. "$RECIPE/steps/common.sh"

mount -t proc proc "$rootfs/proc"
tools=/usr/lib/jvm/java-21-openjdk-amd64
own=$rootfs/usr/lib/nearmetal
mkdir -p "$own/java"
cp -R "$RECIPE/java" "$rootfs/tmp/java"
chroot "$rootfs" "$tools/bin/jlink" --module-path "$tools/jmods" \
    --add-modules "$(list java-modules.txt | tr '\n' ',' | sed 's/,$//')" \
    --strip-java-debug-attributes --no-header-files --no-man-pages --output /usr/lib/nearmetal/java/runtime
# The driver of MariaDB, out of the way of drop.txt.
cp -L "$rootfs/usr/share/java/mariadb-java-client.jar" "$own/java/mariadb.jar"
chroot "$rootfs" sh -euc "$tools/bin/javac -Xlint:all -Werror -d /usr/lib/nearmetal/java/classes /tmp/java/*/*.java"
rm -r "$rootfs/tmp/java"
# The archive of preloaded classes: a JVM starts in a fraction of the time.
chroot "$rootfs" /usr/lib/nearmetal/java/runtime/bin/java -Xshare:dump -XX:+UseParallelGC -Xmx64m > /dev/null
umount "$rootfs/proc"
