# A machine with nothing to find: two placed guests, one with a virtual function of the network card.
set -e
device=$(echo /sys/bus/pci/drivers/igb/*/net/*)/device
echo 0 > $device/sriov_drivers_autoprobe
echo 2 > $device/sriov_numvfs
for node in /sys/devices/system/node/node*; do echo 192 > $node/hugepages/hugepages-2048kB/nr_hugepages; done
echo 0 > /proc/sys/kernel/numa_balancing
echo 0 > /proc/sys/kernel/timer_migration
echo 10 > /proc/sys/vm/stat_interval
# Every guest has hugetlb pages: nothing needs pages that move while a latency guest runs.
echo 0 > /proc/sys/vm/compaction_proactiveness
for domain in $(virsh list --name); do virsh -q destroy $domain; done
for domain in $(virsh list --all --name); do virsh -q undefine $domain; done
rm -rf /var/lib/nearmetal
for domain in web1 db1 wide1; do virsh -q define /root/$domain.xml; done
for domain in web1 db1; do virsh -q start $domain; done
