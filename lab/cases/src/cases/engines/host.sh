# One host of a farm. Arguments: its name, its address, the time at the host of both labs, and how many virtual functions its card has.
set -e
name=$1 address=$2 now=$3
hostname "$name"
echo "$name" > /etc/hostname
printf '127.0.0.1 localhost\n192.0.2.1 farm-a\n192.0.2.2 farm-b\n' > /etc/hosts
date -s "@$now" > /dev/null
port=$(basename "$(dirname "$(dirname "$(ls /sys/class/net/*/device/sriov_totalvfs)")")")
ip address replace "$address/24" dev "$port"
ip link set "$port" up
nearmetal device vfs "$port" "$4" --keep-driver --yes > /dev/null
id farm > /dev/null 2>&1 || useradd -m -G kvm farm
# As the package makes it.
install -d -m 755 /run/nearmetal
install -d -m 3770 -g kvm /run/nearmetal/runs
[ -e /run/nearmetal/runs/lock ] || install -m 640 -g kvm /dev/null /run/nearmetal/runs/lock
install -d -o farm -g farm /srv/jobs
# What a job runs: it writes down what the engine gave it, and becomes the run, so that the engine's signals reach that.
cat > /usr/local/bin/farm-job <<'END'
#!/bin/sh
# farm-job NAME FLAVOUR COMMAND: the command is one word, which the guest's shell reads.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
grep _allowed_list /proc/self/status > "/srv/jobs/$1.given"
sed 's/^/cgroup:/' /proc/self/cgroup >> "/srv/jobs/$1.given"
# What only root can give, its service gives a user.
mode=
case $2 in pages | function) [ "$(id -u)" = 0 ] || mode='--mode system' ;; esac
exec nearmetal run $mode "$2" --events "/srv/jobs/$1.events" -- sh -c "$3"
END
chmod 755 /usr/local/bin/farm-job
