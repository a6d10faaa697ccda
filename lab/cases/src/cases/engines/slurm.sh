# Slurm on a host of a farm: its node, and on farm-a also accounting and controller. examples/ has what the package brings.
set -e
controller=$1
install -d -m 700 -o munge -g munge /etc/munge /var/log/munge /var/lib/munge
install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm/slurmctld
install -d /var/lib/slurm/slurmd
cat > /etc/slurm/slurm.conf <<'END'
ClusterName=farm
SlurmctldHost=farm-a
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
AccountingStorageHost=farm-a
MpiDefault=none
ReturnToService=2
# Emulated processors are slow.
MessageTimeout=60
SlurmdTimeout=600
SchedulerParameters=sched_interval=5,bf_interval=5
END
cat /root/nodes.conf >> /etc/slurm/slurm.conf
# Guests of this test are short.
sed "s/task=10/task=2/" /root/examples/slurm.conf >> /etc/slurm/slurm.conf
cat >> /etc/slurm/slurm.conf <<'END'
PartitionName=batch Nodes=ALL Default=YES PriorityTier=1 MaxTime=120
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF
END
cp /root/examples/cgroup.conf /etc/slurm/cgroup.conf
systemctl start dbus munge
munge -n | unmunge > /dev/null
if [ "$controller" = yes ]; then
    systemctl start mariadb
    mariadb -e "create database if not exists slurm_acct_db; create user if not exists slurm@localhost identified via unix_socket;
        grant all on slurm_acct_db.* to slurm@localhost"
    printf '%s\n' AuthType=auth/munge DbdHost=farm-a SlurmUser=slurm StorageType=accounting_storage/mysql \
        StorageHost=localhost StorageUser=slurm StorageLoc=slurm_acct_db > /etc/slurm/slurmdbd.conf
    chown slurm: /etc/slurm/slurmdbd.conf
    chmod 600 /etc/slurm/slurmdbd.conf
    systemctl start slurmdbd
    for i in $(seq 60); do sacctmgr -n show cluster > /dev/null 2>&1 && break; sleep 2; done
    systemctl start slurmctld
fi
systemctl start slurmd
