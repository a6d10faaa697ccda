# HTCondor on a host of a farm. Argument: the daemons beside master and startd. examples/ has what the package brings.
set -e
# As the package and systemd-tmpfiles have them; the labs' image has no logs.
install -d -o condor -g condor /var/log/condor /var/spool/condor /var/lib/condor/execute /run/condor /run/lock/condor
usermod -aG kvm condor
install -d -m 700 /etc/condor/passwords.d /etc/condor/tokens.d
# The hosts of a farm know each other by one key.
printf 'the-key-of-a-farm-that-lives-for-an-hour' > /etc/condor/passwords.d/POOL
chmod 600 /etc/condor/passwords.d/POOL
cat > /etc/condor/config.d/10-farm.config <<END
CONDOR_HOST = farm-a
NETWORK_HOSTNAME = $(hostname)
NETWORK_INTERFACE = $(ip -4 -o address | sed -n 's/.* \(192\.0\.2\.[0-9]*\).*/\1/p' | head -n 1)
DAEMON_LIST = MASTER STARTD $1
UID_DOMAIN = farm
TRUST_UID_DOMAIN = True
TRUST_DOMAIN = farm
FILESYSTEM_DOMAIN = $(hostname)
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
# Users wait for these.
NEGOTIATOR_INTERVAL = 10
NEGOTIATOR_MIN_INTERVAL = 5
NEGOTIATOR_CYCLE_DELAY = 5
SCHEDD_INTERVAL = 10
STARTER_UPDATE_INTERVAL = 5
STARTER_INITIAL_UPDATE_INTERVAL = 2
RUNBENCHMARKS = False
# What hosts say of themselves is heard soon.
UPDATE_INTERVAL = 20
# Emulated processors are slow.
STARTD_CRON_NEARMETAL_KILL = True
END
sed 's|/usr/bin/nearmetal|/usr/local/bin/nearmetal|; s/60s/20s/' /root/examples/nearmetal.config > /etc/condor/config.d/50-nearmetal.config
systemctl start condor
